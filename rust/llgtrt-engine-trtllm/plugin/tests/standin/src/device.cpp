#include "standin/device.h"

#include <map>
#include <mutex>

namespace standin {
namespace {

thread_local int current = 0;
std::atomic<int> executors = 0;
std::mutex mutex;
std::map<int, std::string> errors;

}  // namespace

Counts& counts() {
  static Counts all{};
  return all;
}

std::chrono::nanoseconds& device_time() {
  thread_local std::chrono::nanoseconds time{};
  return time;
}

int current_device() {
  if (current == 0) ++counts().calls_without_device;
  return current;
}

void set_device(int device) { current = device; }

int new_device(int device) { return ++executors * 64 + device; }

void break_device(int device, std::string error) {
  std::lock_guard const lock(mutex);
  errors.emplace(device, std::move(error));
}

std::string device_error(int device) {
  std::lock_guard const lock(mutex);
  auto const found = errors.find(device);
  return found == errors.end() ? std::string() : found->second;
}

}  // namespace standin
