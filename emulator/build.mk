# The emulated driver: libcuda.so.1 and libnvidia-ml.so.1 over one book per node, the tool that shows the book,
# and an ordinary CUDA program to run on it (or on a real GPU).
EMULATOR := $(BUILD)/emulator
EMULATOR_FLAGS := $(C_FLAGS) -D_GNU_SOURCE -Iemulator
EMULATOR_BOOK := $(wildcard emulator/book/*.c emulator/book/*/*.c)
EMULATOR_NVML := $(wildcard emulator/nvml/*.c)
EMULATOR_CUDA := $(wildcard emulator/cuda/*.c emulator/cuda/*/*.c emulator/cuda/*/*/*.c)
BUSY := $(wildcard emulator/tools/busy/*.c)
emulator_objects = $(patsubst emulator/%.c,$(EMULATOR)/objects/%.o,$(1))

libraries: $(patsubst emulator/%.c,$(EMULATOR)/cuda13/%.o,$(EMULATOR_CUDA) $(BUSY))
libraries: $(EMULATOR)/libcuda.so.1 $(EMULATOR)/libnvidia-ml.so.1 $(EMULATOR)/book $(EMULATOR)/nvidia-cuda-mps-server $(BUILD)/bin/busy

# Every source sees the real headers, so a signature that differs from NVIDIA's does not compile.
$(EMULATOR)/objects/%.o: emulator/%.c emulator/build.mk
	@mkdir -p $(@D)
	@$(CC_PORTABLE) $(EMULATOR_FLAGS) -isystem $(CUDA12_INCLUDE) -isystem $(NVML_INCLUDE) -MMD -MP -c $< -o $@

# CUDA 13 kept every function emulated here: the same sources must also fit its header.
$(EMULATOR)/cuda13/%.o: emulator/%.c emulator/build.mk
	@mkdir -p $(@D)
	@$(CC_PORTABLE) $(EMULATOR_FLAGS) -O0 -isystem $(CUDA13_INCLUDE) -MMD -MP -c $< -o $@

$(EMULATOR)/libcuda.so.1: $(call emulator_objects,$(EMULATOR_CUDA) $(EMULATOR_BOOK))
	@$(CC_PORTABLE) $(LINK_FLAGS) -shared -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-Bsymbolic $^ -lpthread -ldl -o $@
	@ln -sf libcuda.so.1 $(EMULATOR)/libcuda.so

$(EMULATOR)/libnvidia-ml.so.1: $(call emulator_objects,$(EMULATOR_NVML) $(EMULATOR_BOOK))
	@$(CC_PORTABLE) $(LINK_FLAGS) -shared -Wl,-soname,libnvidia-ml.so.1 -Wl,-z,defs $^ -lpthread -ldl -o $@
	@ln -sf libnvidia-ml.so.1 $(EMULATOR)/libnvidia-ml.so

$(EMULATOR)/book: $(call emulator_objects,emulator/tools/book.c $(EMULATOR_BOOK))
	@$(CC_PORTABLE) $(LINK_FLAGS) $^ -lpthread -o $@

$(EMULATOR)/nvidia-cuda-mps-server: $(call emulator_objects,emulator/tools/mps_server.c $(EMULATOR_BOOK))
	@$(CC_PORTABLE) $(LINK_FLAGS) $^ -lpthread -o $@

$(BUILD)/bin/busy: $(call emulator_objects,$(BUSY))
	@mkdir -p $(@D)
	@$(CC_PORTABLE) $(LINK_FLAGS) $^ -ldl -o $@

-include $(wildcard $(addprefix $(EMULATOR)/,$(foreach depth,* */* */*/* */*/*/*,objects/$(depth).d cuda13/$(depth).d)))
