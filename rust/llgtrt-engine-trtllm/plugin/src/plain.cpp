#include "plain.h"

#include <cstring>

namespace llgtrt {

namespace {

/// Whether TensorRT-LLM has this type.
bool is_known(int32_t dtype) { return dtype >= LLGTRT_BOOL && dtype <= LLGTRT_FP32; }

}  // namespace

std::optional<std::list<te::VecTokens>> to_words(llgtrt_trtllm_lists const& lists) {
  if (lists.count == 0) return std::nullopt;
  checked(&lists, "a list");
  if (lists.ends == nullptr) throw InvalidArgument("a list of lists has no ends");
  std::list<te::VecTokens> words;
  size_t begin = 0;
  for (size_t i = 0; i < lists.count; ++i) {
    size_t const end = lists.ends[i];
    if (end < begin || (end > 0 && lists.ids == nullptr)) throw InvalidArgument("a list of lists has wrong ends");
    if (end > begin) words.emplace_back(lists.ids + begin, lists.ids + end);
    begin = end;
  }
  if (words.empty()) return std::nullopt;
  return words;
}

std::optional<te::Tensor> to_tensor(llgtrt_trtllm_tensor const& tensor) {
  if (tensor.data == nullptr) return std::nullopt;
  checked(&tensor, "a tensor");
  if (tensor.rank < 1 || tensor.rank > LLGTRT_MAX_RANK) throw InvalidArgument("a tensor has a wrong rank");
  if (!is_known(tensor.dtype)) throw InvalidArgument("a tensor has a wrong element type");
  for (int32_t i = 0; i < tensor.rank; ++i)
    if (tensor.shape[i] < 0) throw InvalidArgument("a tensor has a negative size");
  auto result = te::Tensor::cpu(static_cast<te::DataType>(tensor.dtype),
                                te::Shape(tensor.shape, static_cast<size_t>(tensor.rank)));
  std::memcpy(result.getData(), tensor.data, result.getSizeInBytes());
  return result;
}

llgtrt_trtllm_tensor no_tensor() {
  llgtrt_trtllm_tensor tensor{};
  tensor.struct_size = sizeof(tensor);
  return tensor;
}

llgtrt_trtllm_tensor to_plain(te::Tensor const& tensor) {
  auto plain = no_tensor();
  auto const shape = tensor.getShape();
  // Leading dimensions of 1 carry nothing.
  size_t skip = 0;
  while (shape.size() - skip > LLGTRT_MAX_RANK && shape[skip] == 1) ++skip;
  if (shape.size() - skip > LLGTRT_MAX_RANK) return plain;
  // Only the host's memory can be read by whoever gets this.
  auto const memory = tensor.getMemoryType();
  if (memory == te::MemoryType::kGPU || memory == te::MemoryType::kUNKNOWN) return plain;
  plain.data = tensor.getData();
  plain.dtype = static_cast<int32_t>(tensor.getDataType());
  plain.rank = static_cast<int32_t>(shape.size() - skip);
  for (int32_t i = 0; i < plain.rank; ++i) plain.shape[i] = shape[skip + i];
  return plain;
}

}  // namespace llgtrt
