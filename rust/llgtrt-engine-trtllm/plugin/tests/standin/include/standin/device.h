// Stand-in for what CUDA keeps for each thread and each device: which device is current, and an error that stays.
//
// A test's process has many executors, and what breaks one must not break the others: each has devices of its own, which
// are numbered by executor and device. 0 is what a thread has that was never told, CUDA's device 0.
#pragma once

#include <string>

namespace standin {

/// As CUDA's: of the calling thread.
int current_device();
void set_device(int device);

/// Device `device` of a new executor.
int new_device(int device);

/// Calls to the device by threads that were never told which: each would take memory on device 0 of a real machine.
int calls_without_device();

/// After an error like an illegal memory access every call to the device fails with it, until the process ends.
void break_device(int device, std::string error);
/// Empty: the device works.
std::string device_error(int device);

}  // namespace standin
