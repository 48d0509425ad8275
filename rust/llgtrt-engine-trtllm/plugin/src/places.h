// Whose mask lies where: a request keeps its row of the masks' memory from one step to the next, so that a mask which has not
// changed is there already.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "plain.h"

namespace llgtrt {

class Places {
 public:
  /// The order of the rows of a step: element p is the index of row p's request in `request_ids`. There are no gaps: the last
  /// row takes the place of one that left, and new ones come last.
  std::vector<size_t> const& assign(std::vector<te::IdType> const& request_ids);

 private:
  void remove_absent();

  /// Of the last step, in the executor's order.
  std::vector<te::IdType> last_;
  /// By place.
  std::vector<te::IdType> owners_;
  std::vector<size_t> order_;
  /// By request: its index among the step's. Empty between steps.
  std::unordered_map<te::IdType, size_t> indices_;
};

}  // namespace llgtrt
