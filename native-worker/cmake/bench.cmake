# Programs of the benchmarks, built from the patched tree.
meshnet_program(meshnet-bench-seam bench/seam.cpp bench/seam_route.cpp bench/seam_tcp.cpp)
target_link_libraries(meshnet-bench-seam PRIVATE meshnet_core)

meshnet_program(meshnet-bench-whole bench/whole.cpp bench/whole_job.cpp bench/whole_shard.cpp)
target_link_libraries(meshnet-bench-whole PRIVATE meshnet_shard)

meshnet_program(meshnet-bench-agreement bench/agreement.cpp bench/agreement_rows.cpp)
target_link_libraries(meshnet-bench-agreement PRIVATE meshnet_shard)

add_executable(agreement_test test/agreement_test.cpp bench/agreement_rows.cpp)
meshnet_ours(agreement_test)
target_include_directories(agreement_test PRIVATE bench)
target_link_libraries(agreement_test PRIVATE GTest::gtest_main)
add_test(NAME agreement_test COMMAND agreement_test)

meshnet_program(meshnet-bench-limits bench/limits.cpp bench/limits_kernels.cpp)
target_link_libraries(meshnet-bench-limits PRIVATE Threads::Threads)

# The wide-area line between network namespaces, and what measures it from inside.
meshnet_program(meshnet-delay-line bench/delay_line/main.cpp bench/delay_line/control.cpp bench/delay_line/device.cpp
  bench/delay_line/link.cpp bench/delay_line/namespace.cpp bench/delay_line/options.cpp bench/delay_line/packet.cpp
  bench/delay_line/sweep.cpp bench/delay_line/switch.cpp)
meshnet_program(meshnet-delay-probe bench/delay_line/probe.cpp bench/seam_tcp.cpp)
target_link_libraries(meshnet-delay-probe PRIVATE Threads::Threads)
