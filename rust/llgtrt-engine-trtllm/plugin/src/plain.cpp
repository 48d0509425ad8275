#include "plain.h"

#include <cstring>

namespace llgtrt {

std::vector<std::vector<int32_t>> to_lists(llgtrt_trtllm_lists const& lists) {
  std::vector<std::vector<int32_t>> result;
  if (lists.count == 0) return result;
  checked(&lists, "a list");
  if (lists.ends == nullptr) throw InvalidArgument("a list of lists has no ends");
  result.reserve(lists.count);
  size_t begin = 0;
  for (size_t i = 0; i < lists.count; ++i) {
    size_t const end = lists.ends[i];
    if (end < begin || (end > 0 && lists.ids == nullptr)) throw InvalidArgument("a list of lists has wrong ends");
    result.emplace_back(lists.ids + begin, lists.ids + end);
    begin = end;
  }
  return result;
}

std::optional<std::list<te::VecTokens>> to_words(llgtrt_trtllm_lists const& lists) {
  std::list<te::VecTokens> words;
  for (auto& word : to_lists(lists))
    if (!word.empty()) words.push_back(std::move(word));
  if (words.empty()) return std::nullopt;
  return words;
}

size_t element_size(int32_t dtype) {
  switch (dtype) {
    case LLGTRT_BOOL:
    case LLGTRT_UINT8:
    case LLGTRT_INT8:
    case LLGTRT_FP8: return 1;
    case LLGTRT_BF16:
    case LLGTRT_FP16: return 2;
    case LLGTRT_INT32:
    case LLGTRT_FP32: return 4;
    case LLGTRT_INT64: return 8;
    default: return 0;
  }
}

std::optional<te::Tensor> to_tensor(llgtrt_trtllm_tensor const& tensor) {
  if (tensor.data == nullptr) return std::nullopt;
  checked(&tensor, "a tensor");
  if (tensor.rank < 1 || tensor.rank > LLGTRT_MAX_RANK) throw InvalidArgument("a tensor has a wrong rank");
  if (element_size(tensor.dtype) == 0) throw InvalidArgument("a tensor has a wrong element type");
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
