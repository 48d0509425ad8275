// Stand-in: tensors in the host's memory. What the real executor keeps on a GPU is called kGPU here as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "tensorrt_llm/executor/types.h"

namespace tensorrt_llm::executor {

/// Points to dimensions that somebody else owns, as the real one does.
class Shape {
 public:
  using DimType64 = std::int64_t;

  Shape() = default;
  Shape(DimType64 const* data, std::size_t size) : data_(data), size_(size) {}
  Shape(std::initializer_list<DimType64> dims) {
    data_ = dims.begin();
    size_ = dims.size();
  }

  std::size_t size() const { return size_; }
  DimType64 const& operator[](std::size_t index) const { return data_[index]; }
  DimType64 const* begin() const { return data_; }
  DimType64 const* end() const { return data_ + size_; }

 private:
  DimType64 const* data_ = nullptr;
  std::size_t size_ = 0;
};

class Tensor {
 public:
  using CudaStreamPtr = std::shared_ptr<runtime::CudaStream>;

  Tensor() noexcept = default;

  static Tensor cpu(DataType type, Shape shape = {});
  static Tensor gpu(DataType type, CudaStreamPtr stream, Shape shape = {});
  static Tensor of(DataType type, void* data, Shape shape);

  void* getData();
  void const* getData() const;
  DataType getDataType() const;
  MemoryType getMemoryType() const;
  Shape getShape() const;
  std::size_t getSize() const;
  std::size_t getSizeInBytes() const;

  explicit operator bool() const { return static_cast<bool>(storage_); }

 private:
  struct Storage;
  static Tensor make(DataType type, MemoryType memory, Shape shape, void* borrowed);
  std::shared_ptr<Storage> storage_;
};

}  // namespace tensorrt_llm::executor
