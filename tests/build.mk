# The C programs of tests and benchmarks. `make native` compiles each once, for all workers of a run of tests.
# Included by the Makefile, which defines the compiler and the headers' folders.
PROGRAMS := $(BUILD)/programs
OF_HOOK := tests/hook/lib/programs
PROGRAM_FLAGS := -std=c11 -O1 -g -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -isystem $(CUDA12_INCLUDE) -isystem $(NVML_INCLUDE)
PROGRAM_HEADERS := $(wildcard $(OF_HOOK)/*/*.h tests/hook/broker/programs/*/*.h bench/hook/*.h bench/hook/share/task/*.h)
# Each program links those of these libraries that it calls.
OPTIONS := -Wl,--as-needed -L$(EMULATOR) -l:libcuda.so.1 -l:libnvidia-ml.so.1 -lpthread -ldl

SINGLE := $(addprefix $(PROGRAMS)/,at_gate both brief linked plain)
$(SINGLE): $(PROGRAMS)/%: $(OF_HOOK)/%.c
$(PROGRAMS)/asker: $(wildcard $(OF_HOOK)/asker/*.c)
$(PROGRAMS)/hammer: $(wildcard $(OF_HOOK)/hammer/*.c)
$(PROGRAMS)/gangs: tests/hook/broker/programs/gangs.c
$(PROGRAMS)/restless: $(wildcard tests/hook/broker/programs/restless/*.c)
$(PROGRAMS)/nvml_caller: tests/emulator/programs/nvml_caller.c
$(PROGRAMS)/hook_memory: bench/hook/memory/program.c
$(PROGRAMS)/share_short: bench/hook/share/short.c
$(PROGRAMS)/share_task: $(wildcard bench/hook/share/task/*.c)
ORDINARY := $(SINGLE) $(addprefix $(PROGRAMS)/,asker hammer gangs restless nvml_caller hook_memory share_short share_task)

# Programs whose tables follow from NVIDIA's headers and from Python.
TABLES := $(PROGRAMS)/lookups $(PROGRAMS)/offsets
$(TABLES): OPTIONS += -I$(PROGRAMS)/tables -I$(HOOK)
$(PROGRAMS)/lookups: $(OF_HOOK)/lookups.c $(PROGRAMS)/tables/questions.h
$(PROGRAMS)/offsets: $(OF_HOOK)/offsets.c $(PROGRAMS)/tables/fields.h
$(PROGRAMS)/tables/questions.h: tests/hook/lib/lookups.py $(CUDA12_INCLUDE)/cudaTypedefs.h $(CUDA13_INCLUDE)/cudaTypedefs.h
	@mkdir -p $(@D)
	@$(PYTHON) -m tests.hook.lib.lookups >$@.new && mv $@.new $@
$(PROGRAMS)/tables/fields.h: tests/hook/lib/layout.py $(HOOK)/pages.h
	@mkdir -p $(@D)
	@$(PYTHON) -m tests.hook.lib.layout >$@.new && mv $@.new $@

# Parts of the library without the rest.
PARTS := $(PROGRAMS)/books $(PROGRAMS)/crossing $(PROGRAMS)/records
PART_OPTIONS := -D_GNU_SOURCE -I$(HOOK) -Ihook/lib
BOOKS := $(wildcard $(OF_HOOK)/books/*.c) $(addprefix hook/lib/,clock.c memory/holdings.c memory/ledger.c)
$(PARTS): OPTIONS += $(PART_OPTIONS)
$(PARTS): $(filter %.h,$(HOOK_NEEDS))
$(PROGRAMS)/books: $(BOOKS)
$(PROGRAMS)/crossing: $(OF_HOOK)/crossing.c hook/lib/clock.c hook/lib/state.c $(addprefix hook/lib/memory/,exports.c holdings.c ledger.c)
$(PROGRAMS)/records: $(OF_HOOK)/records.c $(addprefix hook/lib/,clock.c state.c $(addprefix memory/,holdings.c ledger.c \
	pools/handles.c pools/pools.c))

# Preloads beside the library, and a program for the oldest and for a newer glibc.
LAYERS := $(addprefix $(PROGRAMS)/,upper.so lower.so dlsym.so)
MARKED := $(PROGRAMS)/marked $(PROGRAMS)/marked-new
$(PROGRAMS)/upper.so: LAYER := UPPER
$(PROGRAMS)/lower.so: LAYER := LOWER
$(PROGRAMS)/dlsym.so: LAYER := DLSYM
$(LAYERS): OPTIONS = -shared -fPIC -D$(LAYER) -ldl
$(LAYERS): $(OF_HOOK)/layers/layer.c
$(PROGRAMS)/marked-new: private CC_PORTABLE := $(ZIG) cc -target $(ARCH)-linux-gnu.2.36
$(MARKED): $(OF_HOOK)/layers/marked.c

# Drivers that stand in the emulator's place. They call it by another name.
DRIVERS := $(patsubst $(OF_HOOK)/%.c,$(PROGRAMS)/%.so,$(wildcard $(OF_HOOK)/drivers/*.c))
$(DRIVERS): OPTIONS = -shared -fPIC -Wl,-soname,libcuda.so.1 -L$(@D) -l:libemul.so.1 -Wl,-rpath,'$$ORIGIN'
$(DRIVERS): $(PROGRAMS)/%.so: $(OF_HOOK)/%.c | $(PROGRAMS)/drivers/libemul.so.1
$(PROGRAMS)/drivers/libemul.so.1: $(EMULATOR)/libcuda.so.1
	@mkdir -p $(@D)
	@sed 's/libcuda\.so\.1\x00/libemul.so.1\x00/g' $< >$@

COMPILED := $(ORDINARY) $(TABLES) $(PARTS) $(LAYERS) $(MARKED) $(DRIVERS)
libraries: $(COMPILED)
$(COMPILED): $(PROGRAM_HEADERS) tests/build.mk | $(EMULATOR)/libcuda.so.1 $(EMULATOR)/libnvidia-ml.so.1
	@mkdir -p $(@D)
	@$(CC_PORTABLE) $(PROGRAM_FLAGS) $(filter %.c,$^) $(OPTIONS) -o $@

# The programs by which a container of the tests on a real node tells what it sees, and how long a command takes.
IN_CONTAINERS := $(BUILD)/bin/view $(BUILD)/bin/timed
libraries: $(IN_CONTAINERS)
$(IN_CONTAINERS): $(BUILD)/bin/%: tests/node/programs/%.c tests/build.mk
	@mkdir -p $(@D)
	@$(CC_PORTABLE) $(C_FLAGS) -D_GNU_SOURCE -isystem $(CUDA12_INCLUDE) -isystem $(NVML_INCLUDE) $< -ldl -o $@

# The document's subscriber in Go, for `make test-all`.
$(PROGRAMS)/subscriber: docs/examples/subscriber.go tests/docs/subscribers.py
	@mkdir -p $(@D)
	@$(PYTHON) -m tests.docs.subscribers

# The library and programs under a sanitizer, for `make test-all`. tests/hook/lib/sanitized.py chooses
# SANITIZER and COMPILER, as a machine has them.
SANITIZED := $(BUILD)/sanitized/$(COMPILER)-$(SANITIZER)
SANITIZED_CC := $(if $(filter zig,$(COMPILER)),$(ZIG) cc,$(COMPILER))
SANITIZE_address := -fsanitize=address,undefined -fno-sanitize-recover=all
SANITIZE_undefined := -fsanitize=undefined -fno-sanitize-recover=all
# gcc's ThreadSanitizer does not know fences. The fence in broker/limits.c orders against another process, not against
# a thread.
SANITIZE_thread := -fsanitize=thread $(if $(filter gcc,$(COMPILER)),-Wno-tsan)
SANITIZED_FLAGS := -std=c11 -O1 -g -fno-omit-frame-pointer $(SANITIZE_$(SANITIZER)) $(if $(filter clang,$(COMPILER)),-shared-libsan) \
	-isystem $(NVML_INCLUDE) -isystem $(CUDA12_INCLUDE)

.PHONY: sanitized sanitized-books
sanitized: $(SANITIZED)/libplimsoll.so $(SANITIZED)/hammer $(SANITIZED)/gate_hammer
sanitized-books: $(SANITIZED)/books

$(SANITIZED)/objects/%.o: hook/lib/%.c tests/build.mk $(HOOK)/pages.h $(HOOK)/known_names.h $(HOOK)/variants.h
	@mkdir -p $(@D)
	@$(SANITIZED_CC) $(SANITIZED_FLAGS) $(PART_OPTIONS) -fPIC -fvisibility=hidden -MMD -MP -c $< -o $@

# The library's `dlsym` and `dlvsym` are not exported: sanitizers look up their own functions through them before they
# can bear instrumented code.
$(SANITIZED)/exports.map: $(HOOK)/exports.map tests/build.mk
	@mkdir -p $(@D)
	@grep -q 'dlsym; dlvsym; ' $< && sed 's/dlsym; dlvsym; //' $< >$@

$(SANITIZED)/libplimsoll.so: $(HOOK_SOURCES:hook/lib/%.c=$(SANITIZED)/objects/%.o) $(SANITIZED)/exports.map
	@$(SANITIZED_CC) $(SANITIZED_FLAGS) -shared -Wl,-soname,libplimsoll.so -Wl,-Bsymbolic \
		-Wl,--version-script,$(SANITIZED)/exports.map $(filter %.o,$^) -o $@

$(SANITIZED)/hammer: $(wildcard $(OF_HOOK)/hammer/*.c)
$(SANITIZED)/gate_hammer: $(OF_HOOK)/gate_hammer.c
$(SANITIZED)/books: SANITIZED_FLAGS += $(PART_OPTIONS)
$(SANITIZED)/books: $(BOOKS) $(filter %.h,$(HOOK_NEEDS))
$(SANITIZED)/hammer $(SANITIZED)/gate_hammer $(SANITIZED)/books: $(PROGRAM_HEADERS) tests/build.mk | $(EMULATOR)/libcuda.so.1
	@mkdir -p $(@D)
	@$(SANITIZED_CC) $(SANITIZED_FLAGS) $(filter %.c,$^) -Wl,--as-needed -L$(EMULATOR) -l:libcuda.so.1 -lpthread -o $@

-include $(wildcard $(addprefix $(SANITIZED)/objects/,*.d */*.d */*/*.d))
