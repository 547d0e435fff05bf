# SPDX-License-Identifier: Apache-2.0
# What people type. The build itself is Meson's (meson.build); this file only calls it.
#
#   make        build into build/ (the command is build/supernode)
#   make run    install what is missing, build, train a GPT on real text over two emulated hosts
#   make test   install what is missing, build, run every test
#   make bench  run the benchmarks (alone on the machine, please)

BUILD ?= build
PREFIX ?= /usr/local
SUPERNODE = $(BUILD)/supernode

.PHONY: all run test soak bench install uninstall setup setup-test tidy format clean

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD) $(NINJAFLAGS)

$(BUILD)/build.ninja:
	@tool/setup --check build
	@meson setup $(BUILD) --prefix $(PREFIX) $(MESONFLAGS)

setup:
	@tool/setup run

setup-test:
	@tool/setup test

run: setup all
	@$(SUPERNODE) train examples/gpt-english.yaml

test: setup-test all
	@tool/test $(BUILD)

soak: setup-test all
	@tool/test $(BUILD) --soak

bench: setup-test all
	@$(SUPERNODE) bench all --json

install: all
	@meson install -C $(BUILD)

uninstall:
	@ninja -C $(BUILD) uninstall

tidy:
	@tool/tidy

format:
	@clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	@rm -rf $(BUILD) build-asan build-tsan
