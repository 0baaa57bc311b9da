# The llama.cpp tree as a static library, with one set of options for the patched and the stock build.
set(MESHNET_LLAMA_DIR "" CACHE PATH "llama.cpp tree at the pinned commit, with or without our patches")
if(NOT EXISTS "${MESHNET_LLAMA_DIR}/include/llama.h")
  message(FATAL_ERROR "MESHNET_LLAMA_DIR names no llama.cpp tree: '${MESHNET_LLAMA_DIR}'. Run build.sh, which fetches it.")
endif()

function(meshnet_pin name value)
  set(${name} ${value} CACHE BOOL "fixed by meshnet" FORCE)
endfunction()

meshnet_pin(BUILD_SHARED_LIBS OFF)
meshnet_pin(LLAMA_BUILD_COMMON ON)
foreach(part TESTS TOOLS EXAMPLES SERVER APP UI)
  meshnet_pin(LLAMA_BUILD_${part} OFF)
endforeach()
meshnet_pin(LLAMA_OPENSSL OFF)
meshnet_pin(LLAMA_SUBPROCESS OFF)
meshnet_pin(LLAMA_ALL_WARNINGS OFF)
meshnet_pin(LLAMA_TOOLS_INSTALL OFF)
# Spinning OpenMP teams of two workers on shared cores starve each other; ggml's own pool can be told not to poll.
meshnet_pin(GGML_OPENMP OFF)
# Benchmarks compare with its servers; ours has no use for them.
meshnet_pin(GGML_RPC ${MESHNET_STOCK})
meshnet_pin(GGML_CCACHE OFF)
option(MESHNET_NATIVE "use every instruction of this processor; otherwise AVX2, equal on every machine" ON)
meshnet_pin(GGML_NATIVE ${MESHNET_NATIVE})
if(NOT MESHNET_NATIVE)
  foreach(feature SSE42 AVX AVX2 BMI2 FMA F16C)
    meshnet_pin(GGML_${feature} ON)
  endforeach()
endif()

add_subdirectory("${MESHNET_LLAMA_DIR}" llama EXCLUDE_FROM_ALL)

# Kernels of this tree that are left out on x86 (ARCHITECTURE.md, Decisions); the engine class names them.
set(MESHNET_KERNELS "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(MESHNET_KERNELS -mno-avx512fp16)
  target_compile_options(ggml-cpu PRIVATE ${MESHNET_KERNELS})
endif()
