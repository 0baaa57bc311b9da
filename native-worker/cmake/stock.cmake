# What is built from the unpatched tree: what a benchmark holds ours against. Nothing here is part of the product.
foreach(tool llama-bench batched-bench quantize rpc)
  add_subdirectory("${MESHNET_LLAMA_DIR}/tools/${tool}" ${tool})
endforeach()
foreach(program llama-bench llama-batched-bench llama-quantize ggml-rpc-server)
  meshnet_binary_folder(${program})
endforeach()

meshnet_program(meshnet-bench-whole bench/whole.cpp bench/whole_job.cpp bench/whole_llama.cpp)
target_link_libraries(meshnet-bench-whole PRIVATE llama)
target_compile_definitions(meshnet-bench-whole PRIVATE MESHNET_LLAMA_TREE="${MESHNET_LLAMA_TREE}")
