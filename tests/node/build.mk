# The programs by which a container of the tests on a real node tells what it sees, and how long a command takes.
libraries: $(BUILD)/bin/view $(BUILD)/bin/timed

$(BUILD)/bin/view $(BUILD)/bin/timed: $(BUILD)/bin/%: tests/node/programs/%.c tests/node/build.mk
	@mkdir -p $(@D)
	@echo "cc $@"
	@$(CC_PORTABLE) $(C_FLAGS) -D_GNU_SOURCE -isystem $(CUDA12_INCLUDE) -isystem $(NVML_INCLUDE) $< -o $@ -ldl
