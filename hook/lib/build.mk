# The preload library. Included by the Makefile, which defines the compiler and the headers' folders.
HOOK := build/hook
HOOK_SOURCES := $(wildcard hook/lib/*.c hook/lib/*/*.c hook/lib/*/*/*.c)
HOOK_NEEDS := $(HOOK_SOURCES) $(wildcard hook/lib/*.h hook/lib/*/*.h hook/lib/*/*/*.h) $(HOOK)/pages.h $(HOOK)/exports.map $(HOOK)/known_names.h $(HOOK)/variants.h hook/lib/build.mk
# Only the table's names leave the library; every symbol it needs itself must be found at link time; and its own
# names mean its own functions, also when another preload in front exports the same ones. It links libc alone: of
# the locks' functions libc itself has those used here, in every glibc, and what starts its one thread is looked up when
# it is needed, as the driver has brought it by then.
HOOK_CC = $(CC_PORTABLE) $(C_FLAGS) -D_GNU_SOURCE -I$(HOOK) -Ihook/lib -isystem $(NVML_INCLUDE) -shared -Wl,-soname,libplimsoll.so \
	-Wl,-z,defs -Wl,-Bsymbolic -Wl,--version-script,$(HOOK)/exports.map $(HOOK_SOURCES)

libraries: $(HOOK)/libplimsoll.so $(HOOK)/against-cuda13.so $(HOOK)/other-machine.so

$(HOOK)/pages.h: plimsoll/broker/pages.py
	@mkdir -p $(@D)
	@$(PYTHON) -m plimsoll.broker.pages > $@.new && mv $@.new $@

$(HOOK)/exports.map: hook/lib/exports.map.in hook/lib/hooks.h
	@mkdir -p $(@D)
	@$(CC_PORTABLE) -E -P -xc $< -o $@

# No function of NVIDIA's headers stays unclassified: see classify.py.
$(HOOK)/known_names.h: hook/lib/classify.py hook/lib/hooks.h hook/lib/passes.txt $(CUDA12_INCLUDE)/cuda.h $(CUDA13_INCLUDE)/cuda.h
	@mkdir -p $(@D)
	@$(PYTHON) -m hook.lib.classify $@.new $(CUDA12_INCLUDE) $(CUDA13_INCLUDE) && mv $@.new $@

# Which of them a name means for a CUDA version: see variants.py.
$(HOOK)/variants.h: hook/lib/variants.py hook/lib/classify.py hook/lib/hooks.h $(CUDA12_INCLUDE)/cudaTypedefs.h $(CUDA13_INCLUDE)/cudaTypedefs.h
	@mkdir -p $(@D)
	@$(PYTHON) -m hook.lib.variants $@.new $(CUDA12_INCLUDE) $(CUDA13_INCLUDE) && mv $@.new $@

$(HOOK)/libplimsoll.so: $(HOOK_NEEDS)
	@echo "cc $@"
	@$(HOOK_CC) -isystem $(CUDA12_INCLUDE) -o $@

# The same sources must agree with the declarations of CUDA 13; the file is kept as the proof, not to be used.
$(HOOK)/against-cuda13.so: $(HOOK_NEEDS)
	@echo "cc $@"
	@$(HOOK_CC) -isystem $(CUDA13_INCLUDE) -o $@

# And for the other machine that is supported, with its glibc 2.17: kept as the proof likewise.
OTHER_TARGET := $(if $(filter aarch64,$(ARCH)),x86_64,aarch64)-linux-gnu.2.17
$(HOOK)/other-machine.so: $(HOOK_NEEDS)
	@echo "cc $@"
	@$(subst $(ZIG_TARGET),$(OTHER_TARGET),$(HOOK_CC)) -isystem $(CUDA12_INCLUDE) -o $@
