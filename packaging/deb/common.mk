# What the rules for both releases of Debian share.

UNITS = $(notdir $(wildcard units/*.service units/*.slice units/*.socket units/*.timer))

# the groups come before the directories which belong to them
execute_before_dh_installtmpfiles:
	dh_installsysusers

# Nothing is enabled or started unasked. On upgrade the pods stay as they are: the unit of the boot
# has done its work, and is neither stopped nor run again.
override_dh_installsystemd:
	dh_installsystemd --no-enable --no-start --no-stop-on-upgrade $(UNITS)

# the examples are to be read, and applied, as they are
override_dh_compress:
	dh_compress -Xexamples
