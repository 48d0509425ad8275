// A plugin whose TensorRT-LLM has lost its executor: a name of it that no library defines.
#include <cstdint>

namespace tensorrt_llm::executor {
class Executor {
 public:
  void shutdown();
};
}  // namespace tensorrt_llm::executor

extern "C" __attribute__((visibility("default"))) uint32_t llgtrt_trtllm_abi_version() {
  static_cast<tensorrt_llm::executor::Executor*>(nullptr)->shutdown();
  return 1;
}
