// Options: the command line of meshnet-delay-line.
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "link.h"
#include "namespace.h"

namespace meshnet::delay {

struct Options {
  bool help = false;
  bool check = false;
  std::vector<std::string> sweep;  // paths of namespaces
  size_t namespaces = 2;
  LinkSettings link;
  int mtu = 1500;
  int64_t spin_us = 50;
  int core = -1;
  Sysctls sysctls;
};

// Throws std::runtime_error that names the option.
Options ParseOptions(int argc, char ** argv);

const char * Usage();

}  // namespace meshnet::delay
