# What is built from the patched tree: the worker, its libraries, and the tools that test and feed it.

# The engine side: one layer range in one llama_context.
add_library(meshnet_shard STATIC src/shard.cpp src/gguf_check.cpp)
meshnet_ours(meshnet_shard)
target_include_directories(meshnet_shard PUBLIC src)
target_include_directories(meshnet_shard SYSTEM PRIVATE "${MESHNET_LLAMA_DIR}/src")
target_link_libraries(meshnet_shard PUBLIC llama)
list(JOIN MESHNET_KERNELS " " meshnet_kernels)
target_compile_definitions(meshnet_shard PRIVATE
  MESHNET_LLAMA_TREE="${MESHNET_LLAMA_TREE}" MESHNET_PATCHED_TREE="${MESHNET_PATCHED_TREE}"
  MESHNET_KERNELS="${meshnet_kernels}")

# Messages and services of proto/.
find_package(Protobuf REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(GRPC REQUIRED IMPORTED_TARGET grpc++)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
set(proto_dir "${CMAKE_CURRENT_SOURCE_DIR}/../proto")
set(generated "${CMAKE_BINARY_DIR}/generated")
file(MAKE_DIRECTORY "${generated}")
set(proto_sources)
foreach(name seam peer worker)
  add_custom_command(
    OUTPUT ${generated}/${name}.pb.cc ${generated}/${name}.pb.h ${generated}/${name}.grpc.pb.cc ${generated}/${name}.grpc.pb.h
    COMMAND protobuf::protoc --proto_path=${proto_dir} --cpp_out=${generated} --grpc_out=${generated}
            --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} ${proto_dir}/${name}.proto
    DEPENDS ${proto_dir}/seam.proto ${proto_dir}/${name}.proto
    VERBATIM)
  list(APPEND proto_sources ${generated}/${name}.pb.cc ${generated}/${name}.grpc.pb.cc)
endforeach()
add_library(meshnet_proto STATIC ${proto_sources})
target_include_directories(meshnet_proto SYSTEM PUBLIC "${generated}")
target_link_libraries(meshnet_proto PUBLIC protobuf::libprotobuf PkgConfig::GRPC)

# The engine thread and what it decides: lanes, ticks, sampling. Knows frames, but neither sockets nor gRPC calls.
add_library(meshnet_engine STATIC
  src/decode_batch.cpp src/emission.cpp src/engine.cpp src/engine_core.cpp src/engine_probe.cpp src/lane.cpp
  src/lane_bundle.cpp src/lane_input.cpp src/lane_ports.cpp src/lane_run.cpp src/lane_turn.cpp src/ledger.cpp
  src/meter.cpp src/prefill_pace.cpp src/sampler.cpp src/sampler_automaton.cpp src/sampler_budget.cpp
  src/sampler_grammar.cpp src/sampler_grammar_check.cpp src/sampling_pool.cpp src/scheduler.cpp src/tick.cpp
  src/tick_sizes.cpp src/trace.cpp)
meshnet_ours(meshnet_engine)
target_include_directories(meshnet_engine SYSTEM PRIVATE "${MESHNET_LLAMA_DIR}/src")
target_link_libraries(meshnet_engine PUBLIC meshnet_shard meshnet_proto OpenSSL::Crypto Threads::Threads)

# Our own code above the shard. A new file in src/ is added to this list.
set(core_files
  args boot_token certificate control control_lanes control_server control_state control_watch cpu_limit frame
  frame_scan parent_watch seam seam_digest seam_open seam_receiver seam_sender service service_dial service_limits
  status_report stream text text_vocabulary tickets timer tls)
set(core_sources)
foreach(name ${core_files})
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/src/${name}.cpp")
    list(APPEND core_sources src/${name}.cpp)
  endif()
endforeach()
if(core_sources)
  add_library(meshnet_core STATIC ${core_sources})
  meshnet_ours(meshnet_core)
  target_link_libraries(meshnet_core PUBLIC meshnet_engine meshnet_shard meshnet_proto llama-common OpenSSL::Crypto Threads::Threads)
endif()
if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/src/main.cpp")
  meshnet_program(meshnet-worker src/main.cpp)
  target_link_libraries(meshnet-worker PRIVATE meshnet_core)
endif()

# Tools.
meshnet_program(meshnet-testmodel tools/testmodel.cpp)
target_link_libraries(meshnet-testmodel PRIVATE llama)
target_compile_definitions(meshnet-testmodel PRIVATE MESHNET_VOCAB_DIR="${MESHNET_LLAMA_DIR}/models")

meshnet_program(meshnet-parity test/parity.cpp test/parity_script.cpp test/parity_chain.cpp test/parity_greedy.cpp
  test/parity_sparse.cpp)
target_link_libraries(meshnet-parity PRIVATE meshnet_shard OpenSSL::Crypto)

meshnet_program(meshnet-replay tools/replay.cpp)
target_link_libraries(meshnet-replay PRIVATE meshnet_shard OpenSSL::Crypto)

# Tests that ctest runs: test/NAME.cpp is a program that exits with 0 when all is well.
function(meshnet_test name)
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/test/${name}.cpp")
    add_executable(${name} test/${name}.cpp)
    meshnet_ours(${name})
    target_link_libraries(${name} PRIVATE meshnet_core)
    add_test(NAME ${name} COMMAND ${name} ${ARGN})
  endif()
endfunction()

add_executable(shard_test test/shard_test.cpp)
meshnet_ours(shard_test)
target_link_libraries(shard_test PRIVATE meshnet_shard)
add_test(NAME shard_model COMMAND meshnet-testmodel --out shard_test.gguf --layers 3 --embd 64 --ffn 128)
add_test(NAME shard_test COMMAND shard_test shard_test.gguf)
set_tests_properties(shard_model PROPERTIES FIXTURES_SETUP shard_model)
set_tests_properties(shard_test PROPERTIES FIXTURES_REQUIRED shard_model)

add_test(NAME text_model COMMAND meshnet-testmodel --out text_test.gguf --layers 1 --embd 64 --ffn 64 --tied yes --vocab llama-bpe)
set_tests_properties(text_model PROPERTIES FIXTURES_SETUP text_model)
meshnet_test(text_test text_test.gguf)
set_tests_properties(text_test PROPERTIES FIXTURES_REQUIRED text_model)

# The engine's tests, on GoogleTest; those that need a model get the path of a generated one.
find_package(GTest REQUIRED)
add_executable(engine_test test/abort_guard_test.cpp test/decode_batch_test.cpp test/engine_core_test.cpp
  test/engine_end_test.cpp test/engine_fault_test.cpp test/engine_ring.cpp test/engine_ring_test.cpp
  test/engine_test.cpp test/isolation_test.cpp test/lane_head_test.cpp test/lane_later_test.cpp test/lane_stand.cpp
  test/lane_test.cpp test/ledger_test.cpp test/paced_ring_test.cpp test/prefill_pace_test.cpp test/sampler_test.cpp
  test/sampling_pool_test.cpp test/scheduler_test.cpp test/tick_sizes_test.cpp test/vocabulary_suite.cpp test/whole_model.cpp)
meshnet_ours(engine_test)
target_link_libraries(engine_test PRIVATE meshnet_engine GTest::gtest)
add_test(NAME engine_test COMMAND engine_test --model shard_test.gguf)
set_tests_properties(engine_test PROPERTIES FIXTURES_REQUIRED shard_model)

# Many sessions at random, against a replay of their batches and alone. A sanitizer makes minutes of it.
add_executable(sessions_test test/sessions_test.cpp test/sessions_play.cpp test/sessions_record.cpp
  test/sessions_replay.cpp test/sessions_solo.cpp test/engine_ring.cpp)
meshnet_ours(sessions_test)
target_link_libraries(sessions_test PRIVATE meshnet_engine GTest::gtest)
add_test(NAME sessions_model COMMAND meshnet-testmodel --out sessions_test.gguf --type f32 --layers 4 --embd 64
  --ffn 128 --vocab-size 4096)
add_test(NAME sessions_test COMMAND sessions_test --model sessions_test.gguf)
set_tests_properties(sessions_model PROPERTIES FIXTURES_SETUP sessions_model)
set_tests_properties(sessions_test PROPERTIES FIXTURES_REQUIRED sessions_model
  ENVIRONMENT "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1")
if(MESHNET_SANITIZE)
  set_tests_properties(sessions_test PROPERTIES TIMEOUT 1800)
endif()

# Bytes that the TypeScript side reads too. Needs the codec only.
add_executable(golden_test test/golden_test.cpp src/frame.cpp src/frame_scan.cpp)
meshnet_ours(golden_test)
target_include_directories(golden_test PRIVATE src)
target_compile_definitions(golden_test PRIVATE MESHNET_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/../test/golden")
target_link_libraries(golden_test PRIVATE meshnet_proto GTest::gtest_main OpenSSL::Crypto)
add_test(NAME golden_test COMMAND golden_test)

# A kernel of a patch, built for processors that this one may not be.
add_executable(rows_test test/rows_test.cpp)
meshnet_ours(rows_test)
target_include_directories(rows_test PRIVATE "${MESHNET_LLAMA_DIR}/ggml/src/ggml-cpu")
target_compile_options(rows_test PRIVATE -mavx2 -mfma -mf16c)
target_link_libraries(rows_test PRIVATE GTest::gtest_main)
add_test(NAME rows_test COMMAND rows_test)

# The edge: codec, seams on loopback, and whole workers behind their sockets.
file(GLOB golden_files "${CMAKE_CURRENT_SOURCE_DIR}/../test/golden/*.bin")
add_executable(fuzz_frame fuzz/fuzz_frame.cpp src/frame.cpp src/frame_scan.cpp)
meshnet_ours(fuzz_frame)
target_include_directories(fuzz_frame PRIVATE src)
target_link_libraries(fuzz_frame PRIVATE meshnet_proto)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND MESHNET_SANITIZE STREQUAL "address")
  target_compile_options(fuzz_frame PRIVATE -fsanitize=fuzzer)
  target_link_options(fuzz_frame PRIVATE -fsanitize=fuzzer)
  add_test(NAME fuzz_frame COMMAND fuzz_frame -runs=200000 -seed=1 "${CMAKE_CURRENT_SOURCE_DIR}/../test/golden")
else()
  target_sources(fuzz_frame PRIVATE fuzz/driver.cpp)
  add_test(NAME fuzz_frame COMMAND fuzz_frame 200000 1 ${golden_files})
endif()
add_executable(frame_test test/frame_test.cpp)
add_executable(seam_test test/seam_test.cpp test/seam_open_test.cpp test/seam_dial_test.cpp test/seam_listening.cpp
  test/seam_end.cpp test/seam_client.cpp)
foreach(name frame_test seam_test)
  meshnet_ours(${name})
  target_link_libraries(${name} PRIVATE meshnet_core GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endforeach()
add_executable(control_test test/control_test.cpp test/bridge.cpp test/session.cpp test/seam_client.cpp test/worker_process.cpp)
meshnet_ours(control_test)
target_link_libraries(control_test PRIVATE meshnet_core GTest::gtest)
add_dependencies(control_test meshnet-worker)
add_test(NAME control_test COMMAND control_test --worker $<TARGET_FILE:meshnet-worker> --model shard_test.gguf)
set_tests_properties(control_test PROPERTIES FIXTURES_REQUIRED shard_model TIMEOUT 300)
