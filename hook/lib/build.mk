# The preload library. Included by the Makefile, which defines the compiler and the headers' folders.
HOOK := $(BUILD)/hook
HOOK_SOURCES := $(wildcard hook/lib/*.c hook/lib/*/*.c hook/lib/*/*/*.c)
HOOK_NEEDS := $(HOOK_SOURCES) $(wildcard hook/lib/*.h hook/lib/*/*.h hook/lib/*/*/*.h) $(HOOK)/pages.h $(HOOK)/exports.map $(HOOK)/known_names.h $(HOOK)/variants.h hook/lib/build.mk
# The library exports the table's names alone. Every symbol that it needs must be found at link time. Its own names mean
# its own functions, even when another preload in front exports the same names. The library links libc alone: in every
# glibc, libc itself has the lock functions used here. The functions that start the library's one thread are looked up
# when they are needed, because the driver has brought them by then.
# The library runs inside other people's programs, also as root: overflows end the program.
HARDENED := -fstack-protector-strong -D_FORTIFY_SOURCE=2 -Wl,-z,relro,-z,now,-z,noexecstack
HOOK_CC = $(CC_PORTABLE) $(C_FLAGS) $(HARDENED) -D_GNU_SOURCE -I$(HOOK) -Ihook/lib -isystem $(NVML_INCLUDE) $(LINK_FLAGS) -shared -Wl,-soname,libplimsoll.so \
	-Wl,-z,defs -Wl,-Bsymbolic -Wl,--version-script,$(HOOK)/exports.map $(HOOK_SOURCES)

libraries: $(HOOK)/libplimsoll.so $(HOOK)/against-cuda13.so $(HOOK)/other-machine.so

$(HOOK)/pages.h: plimsoll/broker/header.py plimsoll/broker/pages.py plimsoll/broker/datagrams.py plimsoll/cpus.py
	@mkdir -p $(@D)
	@$(PYTHON) -m plimsoll.broker.header > $@.new && mv $@.new $@

$(HOOK)/exports.map: hook/lib/exports.map.in hook/lib/hooks.h
	@mkdir -p $(@D)
	@$(CC_PORTABLE) -E -P -xc $< -o $@

# Every function of NVIDIA's headers must be classified: see classify.py.
$(HOOK)/known_names.h: hook/lib/classify.py hook/lib/hooks.h hook/lib/passes.txt $(CUDA12_INCLUDE)/cuda.h $(CUDA13_INCLUDE)/cuda.h
	@mkdir -p $(@D)
	@$(PYTHON) -m hook.lib.classify $@.new $(CUDA12_INCLUDE) $(CUDA13_INCLUDE) && mv $@.new $@

# The function that a name means for a CUDA version: see variants.py.
$(HOOK)/variants.h: hook/lib/variants.py hook/lib/classify.py hook/lib/hooks.h $(CUDA12_INCLUDE)/cudaTypedefs.h $(CUDA13_INCLUDE)/cudaTypedefs.h
	@mkdir -p $(@D)
	@$(PYTHON) -m hook.lib.variants $@.new $(CUDA12_INCLUDE) $(CUDA13_INCLUDE) && mv $@.new $@

$(HOOK)/libplimsoll.so: $(HOOK_NEEDS)
	@echo "cc $@"
	@$(HOOK_CC) -isystem $(CUDA12_INCLUDE) -o $@

# The same sources must agree with the declarations of CUDA 13. The file proves that; nothing uses it.
$(HOOK)/against-cuda13.so: $(HOOK_NEEDS)
	@echo "cc $@"
	@$(HOOK_CC) -isystem $(CUDA13_INCLUDE) -o $@

# The same sources must build for the other supported machine, with its glibc 2.17. The file proves that too.
OTHER_TARGET := $(if $(filter aarch64,$(ARCH)),x86_64,aarch64)-linux-gnu.2.17
$(HOOK)/other-machine.so: $(HOOK_NEEDS)
	@echo "cc $@"
	@$(subst $(ZIG_TARGET),$(OTHER_TARGET),$(HOOK_CC)) -isystem $(CUDA12_INCLUDE) -o $@
