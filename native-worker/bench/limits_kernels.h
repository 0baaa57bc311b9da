// Kernels that do one kind of work as fast as one core can: reading, copying, multiplying in each format that it knows.
// Threads: functions without shared state; each may run on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace meshnet::limits {

// What this processor and its kernel let a program use, as /proc/cpuinfo names it (a subset, in a fixed order).
std::vector<std::string> Features();
bool Has(const std::string & feature);

// Reads all of [data, data + bytes) once; bytes is a multiple of 4096. The result depends on every byte.
double Read(const std::byte * data, size_t bytes);

// Of one number format: so many operations a call (a multiply-add counts as two); adds to *sink what it computed.
struct Kernel {
  std::string name;
  uint64_t ops;
  void (*run)(double * sink);
};

// f32 always; int8, bf16, amx_int8 and amx_bf16 where the processor has an instruction that multiplies and adds them.
// Asks the kernel for the AMX state of this process, so call it before threads are started.
std::vector<Kernel> Kernels();

// AMX tiles have to be set up on each thread that uses them, and given back.
void EnterThread();
void LeaveThread();

}  // namespace meshnet::limits
