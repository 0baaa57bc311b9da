// What every small program does around its work: --help, and an error in one line. Run on the main thread.
#pragma once

#include <cstdio>
#include <exception>
#include <string>

namespace meshnet {

// Gives the exit code: 0 after `--help` alone, `work`'s own, or 1 when it throws.
template <typename Work>
int ToolMain(int argc, char ** argv, const char * name, const char * usage, Work && work) {
  if (argc == 2 && std::string(argv[1]) == "--help") {
    std::fputs(usage, stdout);
    return 0;
  }
  try {
    return work();
  } catch (const std::exception & e) {
    std::fprintf(stderr, "%s: %s\n", name, e.what());
    return 1;
  }
}

}  // namespace meshnet
