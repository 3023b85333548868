# The scripts in .ci/ do the work; each sets up what it needs, which takes seconds when nothing is missing.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long sim model fuzz mutants bench profile pkg size lint clean
# Two builds at once would only wait for each other.
.NOTPARALLEL:

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install whatever is missing for all of the below
	@.ci/setup

demo: pkg ## build and serve the page; CHECK=1 drives two headless tabs through it, and ends
	@$(if $(CHECK),.ci/setup chromium)
	@.ci/with cargo run -p leasehold-browser-tests --bin demo $(if $(CHECK),-- --check)

test: ## run every test: native, wasm in two browsers, the package, with bundlers, real tabs in three
	@.ci/test

test-long: ## tabs that are hidden for minutes, and twenty that count; take-over times over many ends; processes killed at random on each store; an hour
	@.ci/test-long

sim: ## a million random histories in simulated time; HISTORIES=n runs n of each kind
	@.ci/sim

model: ## the shipped core under a model checker at full size, two hours; prints its table
	@.ci/with cargo run --release -p leasehold-model

fuzz: ## random operations and random bytes, for minutes instead of seconds
	@PROPTEST_CASES=70000 BOLERO_RANDOM_ITERATIONS=3000000 BOLERO_RANDOM_TEST_TIME_MS=600000 \
	    CARGO_PROFILE_TEST_OPT_LEVEL=2 .ci/with cargo test --features tokio,test-util --test properties

mutants: ## break each rule of the protocol, and see it caught
	@.ci/with cargo test -p leasehold-mutants -- --nocapture

bench: $(if $(filter native costs names sqlite postgres redis etcd,$(ONLY)),,pkg) ## measure into target/bench/; ONLY=native|browser|first|chromium|… a part, QUICK=1 few samples
	@.ci/bench $(ONLY) $(if $(QUICK),quick)

profile: pkg ## where the time of a lease goes in each browser; ONLY=firefox a part, QUICK=1 few samples, DOCS=1 also into docs/profile.md
	@.ci/bench profile $(ONLY) $(if $(QUICK),quick) $(if $(DOCS),docs)

pkg: ## build the npm package into pkg/, within its size budget
	@.ci/pkg

size: pkg ## what each part of the wasm weighs, into docs/size.md
	@.ci/with node .ci/itemise-size.mjs

lint: ## format, clippy, rustdoc, TypeDoc, dependencies of the core, a dry publish
	@.ci/lint

clean: ## remove all that was built or fetched here
	rm -rf target pkg benches/node_modules tests/browser/node_modules
