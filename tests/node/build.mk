# The program by which a container of the tests on a real node tells what it sees.
libraries: $(BUILD)/bin/view

$(BUILD)/bin/view: tests/node/programs/view.c tests/node/build.mk
	@mkdir -p $(@D)
	@echo "cc $@"
	@$(CC_PORTABLE) $(C_FLAGS) -D_GNU_SOURCE -isystem $(CUDA12_INCLUDE) -isystem $(NVML_INCLUDE) $< -o $@ -ldl
