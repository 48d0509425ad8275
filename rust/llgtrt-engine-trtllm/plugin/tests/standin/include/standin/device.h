// Stand-in for what CUDA keeps for each thread and each device: which device is current, and an error that stays.
//
// A test's process has many executors, and what breaks one must not break the others: each has devices of its own, which
// are numbered by executor and device. 0 is what a thread has that was never told, CUDA's device 0.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace standin {

/// What was done since the process started.
struct Counts {
  std::atomic<uint64_t> forward_passes;
  std::atomic<uint64_t> beam_width_changes;
  std::atomic<uint64_t> allocations;
  std::atomic<uint64_t> copies_to_device;
  std::atomic<uint64_t> bytes_to_device;
  /// Calls to the device by threads that were never told which: each would take memory on device 0 of a real machine.
  std::atomic<uint64_t> calls_without_device;
};
Counts& counts();

/// Time that the calling thread spent on the device's own work, which a real device does on its own.
std::chrono::nanoseconds& device_time();

/// Adds its life to it.
class DeviceTime {
 public:
  DeviceTime() = default;
  ~DeviceTime() { device_time() += std::chrono::steady_clock::now() - start_; }
  DeviceTime(DeviceTime const&) = delete;
  DeviceTime& operator=(DeviceTime const&) = delete;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// As CUDA's: of the calling thread.
int current_device();
void set_device(int device);

/// Device `device` of a new executor.
int new_device(int device);

/// After an error like an illegal memory access every call to the device fails with it, until the process ends.
void break_device(int device, std::string error);
/// Empty: the device works.
std::string device_error(int device);

}  // namespace standin
