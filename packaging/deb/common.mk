# What the rules for both releases of Debian share.

UNITS = $(notdir $(wildcard units/*.service units/*.slice units/*.socket units/*.timer))

# the groups come before the directories which belong to them
execute_before_dh_installtmpfiles:
	dh_installsysusers

AGENT = podslice-agent.service

# Nothing is enabled or started unasked. On upgrade the pods stay as they are: the unit of the boot
# has done its work, and is neither stopped nor run again. An agent that runs becomes the new one; with
# the removal it ends, see podslice.prerm.
override_dh_installsystemd:
	dh_installsystemd --no-enable --no-start --no-stop-on-upgrade $(filter-out $(AGENT),$(UNITS))
	dh_installsystemd --no-enable --no-start --restart-after-upgrade $(AGENT)

# the examples are to be read, and applied, as they are; scanners look for the bill of materials by
# its name
override_dh_compress:
	dh_compress -Xexamples -X.cdx.json
