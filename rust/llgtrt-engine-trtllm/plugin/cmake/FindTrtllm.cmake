# Finds TensorRT-LLM's headers and libraries and learns its C++ ABI. Fails with what to do about it.
set(executor_header tensorrt_llm/executor/executor.h)

if(NOT TRTLLM_INCLUDE_DIR)
  find_path(TRTLLM_INCLUDE_DIR_FOUND ${executor_header}
      HINTS ${TRTLLM_ROOT} /app/tensorrt_llm PATH_SUFFIXES include cpp/include NO_DEFAULT_PATH)
  set(TRTLLM_INCLUDE_DIR ${TRTLLM_INCLUDE_DIR_FOUND})
endif()
if(NOT TRTLLM_INCLUDE_DIR OR NOT EXISTS "${TRTLLM_INCLUDE_DIR}/${executor_header}")
  message(FATAL_ERROR
      "TensorRT-LLM's C++ executor was not found (${executor_header} under '${TRTLLM_ROOT}'). Versions from 1.3 on do not "
      "have it any more: use the 1.2 line, for instance the container nvcr.io/nvidia/tensorrt-llm/release:1.2.1, and "
      "name its folder with -DTRTLLM_ROOT=DIR or -DTRTLLM_INCLUDE_DIR=DIR.")
endif()

if(NOT TRTLLM_LIB_DIR)
  find_path(TRTLLM_LIB_DIR_FOUND libtensorrt_llm.so
      HINTS ${TRTLLM_ROOT} /app/tensorrt_llm PATH_SUFFIXES lib libs NO_DEFAULT_PATH)
  set(TRTLLM_LIB_DIR ${TRTLLM_LIB_DIR_FOUND})
endif()
find_library(TRTLLM_LIBRARY tensorrt_llm HINTS ${TRTLLM_LIB_DIR} NO_DEFAULT_PATH)
find_library(TRTLLM_PLUGIN_LIBRARY nvinfer_plugin_tensorrt_llm HINTS ${TRTLLM_LIB_DIR} NO_DEFAULT_PATH)
if(NOT TRTLLM_LIBRARY OR NOT TRTLLM_PLUGIN_LIBRARY)
  message(FATAL_ERROR
      "libtensorrt_llm.so and libnvinfer_plugin_tensorrt_llm.so were not found in '${TRTLLM_LIB_DIR}': name their "
      "folder with -DTRTLLM_LIB_DIR=DIR.")
endif()

# The library was built with one of GCC's two layouts of std::string; ours has to be the same.
execute_process(COMMAND ${CMAKE_NM} -D ${TRTLLM_LIBRARY} OUTPUT_VARIABLE symbols RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "nm could not read ${TRTLLM_LIBRARY}")
endif()
if(NOT symbols MATCHES "executor8Executor")
  message(FATAL_ERROR
      "${TRTLLM_LIBRARY} has no C++ executor: it was removed after the 1.2 line. Install TensorRT-LLM 1.2.")
endif()
if(symbols MATCHES "__cxx11")
  set(TRTLLM_CXX11_ABI 1)
else()
  set(TRTLLM_CXX11_ABI 0)
endif()
message(STATUS "TensorRT-LLM: headers ${TRTLLM_INCLUDE_DIR}, libraries ${TRTLLM_LIB_DIR}, "
    "_GLIBCXX_USE_CXX11_ABI=${TRTLLM_CXX11_ABI}")
