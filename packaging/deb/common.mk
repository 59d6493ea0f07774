# Rules for both releases of Debian.

UNITS = $(notdir $(wildcard units/*.service units/*.slice units/*.socket units/*.timer))

# groups must exist before the directories that belong to them
execute_before_dh_installtmpfiles:
	dh_installsysusers

AGENT = podslice-agent.service

# No unit is enabled or started. On upgrade the pods stay as they are: podslice-apply.service is neither
# stopped nor restarted. A running agent is restarted; on removal it is stopped, see podslice.prerm.
override_dh_installsystemd:
	dh_installsystemd --no-enable --no-start --no-stop-on-upgrade $(filter-out $(AGENT),$(UNITS))
	dh_installsystemd --no-enable --no-start --restart-after-upgrade $(AGENT)

# the user's agent: not enabled for any user
override_dh_installsystemduser:
	dh_installsystemduser --no-enable

# examples can be applied as they are, programs read schemas, and scanners find the bill of materials
# by its name
override_dh_compress:
	dh_compress -Xexamples -X.json

# of xz; the tests use a faster one
COMPRESSION ?= 6

override_dh_builddeb:
	dh_builddeb -- -Zxz -z$(COMPRESSION)
