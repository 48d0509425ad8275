// What the tests ask of the stand-in inside of the plugin; a program that links the stand-in has a copy of its own.
#include <cstring>

#include "standin/device.h"

extern "C" __attribute__((visibility("default"))) uint64_t llgtrt_standin_count(char const* name) {
  auto const& counts = standin::counts();
  if (std::strcmp(name, "forward_passes") == 0) return counts.forward_passes;
  if (std::strcmp(name, "beam_width_changes") == 0) return counts.beam_width_changes;
  if (std::strcmp(name, "allocations") == 0) return counts.allocations;
  if (std::strcmp(name, "copies_to_device") == 0) return counts.copies_to_device;
  if (std::strcmp(name, "bytes_to_device") == 0) return counts.bytes_to_device;
  if (std::strcmp(name, "calls_without_device") == 0) return counts.calls_without_device;
  return UINT64_MAX;
}

/// The calling thread forgets which device it was told.
extern "C" __attribute__((visibility("default"))) void llgtrt_standin_forget_device() { standin::set_device(0); }
