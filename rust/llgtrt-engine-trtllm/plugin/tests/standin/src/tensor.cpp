// Tensors in the host's memory, allocated exactly, so that AddressSanitizer sees a write past a row.
#include "tensorrt_llm/executor/tensor.h"

#include <cstdlib>
#include <stdexcept>

namespace tensorrt_llm::executor {

struct Tensor::Storage {
  DataType type;
  MemoryType memory;
  std::vector<std::int64_t> shape;
  std::unique_ptr<char[]> owned;
  void* data;
};

namespace {

std::size_t element_size(DataType type) {
  switch (type) {
    case DataType::kINT64: return 8;
    case DataType::kINT32:
    case DataType::kFP32: return 4;
    case DataType::kBF16:
    case DataType::kFP16: return 2;
    default: return 1;
  }
}

}  // namespace

Tensor Tensor::make(DataType type, MemoryType memory, Shape shape, void* borrowed) {
  Tensor tensor;
  tensor.storage_ = std::make_shared<Storage>(
      Storage{type, memory, std::vector<std::int64_t>(shape.begin(), shape.end()), nullptr, borrowed});
  if (borrowed == nullptr) {
    tensor.storage_->owned = std::make_unique<char[]>(tensor.getSizeInBytes());
    tensor.storage_->data = tensor.storage_->owned.get();
  }
  return tensor;
}

Tensor Tensor::cpu(DataType type, Shape shape) { return make(type, MemoryType::kCPU, shape, nullptr); }

Tensor Tensor::gpu(DataType type, CudaStreamPtr /*stream*/, Shape shape) {
  return make(type, MemoryType::kGPU, shape, nullptr);
}

Tensor Tensor::of(DataType type, void* data, Shape shape) {
  if (data == nullptr) throw std::invalid_argument("Tensor::of without data");
  return make(type, MemoryType::kCPU, shape, data);
}

void* Tensor::getData() { return storage_->data; }
void const* Tensor::getData() const { return storage_->data; }
DataType Tensor::getDataType() const { return storage_->type; }
MemoryType Tensor::getMemoryType() const { return storage_->memory; }
Shape Tensor::getShape() const { return {storage_->shape.data(), storage_->shape.size()}; }

std::size_t Tensor::getSize() const {
  std::size_t size = 1;
  for (auto dimension : storage_->shape) size *= static_cast<std::size_t>(dimension);
  return size;
}

std::size_t Tensor::getSizeInBytes() const { return getSize() * element_size(storage_->type); }

}  // namespace tensorrt_llm::executor
