// A plugin of another time.
#include <cstdint>

extern "C" __attribute__((visibility("default"))) uint32_t llgtrt_trtllm_abi_version() { return 999; }
