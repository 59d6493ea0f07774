# Two processes that do nothing but use the processor, each stopped until it is continued:
# as many as the machine has processors, so that their group could take all of it.
spin='kill -STOP $$; while :; do :; done'
sh -c "$spin" &
exec sh -c "$spin"
