#!/bin/sh
# Make the certificates of this directory again: an authority, a server's for node1, a client's, and a
# server's for the loopback interface, which is its own authority. The authority's key is not kept.
set -eu
cd "$(dirname "$0")"
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
echo "subjectAltName=DNS:node1" >extension
openssl req -x509 $key -keyout ca.key -out ca.crt -days 36500 -subj /CN=lab-ca
for pair in server=/CN=node1 client=/O=system:masters/CN=admin; do
  name=${pair%%=*}
  openssl req $key -keyout "$name.key" -out "$name.csr" -subj "${pair#*=}"
  openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -out "$name.crt" \
    -days 36500 -extfile extension
done
openssl req -x509 $key -keyout local.key -out local.crt -days 36500 -subj /CN=localhost \
  -addext "subjectAltName=DNS:localhost,IP:127.0.0.1"
rm -f extension ca.key ca.srl ./*.csr
