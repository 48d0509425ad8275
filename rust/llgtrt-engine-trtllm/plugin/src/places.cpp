#include "places.h"

#include <stdexcept>

namespace llgtrt {

std::vector<size_t> const& Places::assign(std::vector<te::IdType> const& request_ids) {
  // Most steps are of the same requests as the step before.
  if (request_ids == last_) return order_;
  last_ = request_ids;
  indices_.clear();
  for (size_t i = 0; i < request_ids.size(); ++i) indices_.emplace(request_ids[i], i);
  if (indices_.size() != request_ids.size())
    throw std::runtime_error("the executor called the logits post-processor twice for one request in a step");
  remove_absent();
  order_.clear();
  for (auto const owner : owners_) {
    auto const found = indices_.find(owner);
    order_.push_back(found->second);
    indices_.erase(found);
  }
  for (size_t i = 0; i < request_ids.size(); ++i) {
    if (indices_.count(request_ids[i]) == 0) continue;
    owners_.push_back(request_ids[i]);
    order_.push_back(i);
  }
  return order_;
}

void Places::remove_absent() {
  for (size_t place = 0; place < owners_.size();) {
    if (indices_.count(owners_[place]) > 0) {
      ++place;
      continue;
    }
    // Looked at again: the last one may have left as well.
    owners_[place] = owners_.back();
    owners_.pop_back();
  }
}

}  // namespace llgtrt
