// ParentWatch: waits for the reason to stop: a signal, the end of the node's process, or the end of our stdin.
// Threads: Prepare in main before any thread is made; WaitForStop on one thread.
#pragma once

#include "status.h"

namespace meshnet {

class ParentWatch {
 public:
  ParentWatch() = default;
  ~ParentWatch();
  ParentWatch(const ParentWatch &) = delete;
  ParentWatch & operator=(const ParentWatch &) = delete;

  // Blocks SIGTERM, SIGINT and SIGHUP for every thread made later, ignores SIGPIPE. With a parent: the kernel kills us
  // when the thread that started us dies without warning, and its process is watched. kWorkerLost: it is gone already.
  Status Prepare(int parent_pid);

  enum class Reason { kSignal, kParentGone, kAsked };
  // Without a parent stdin is not watched: it may be a terminal or /dev/null.
  Reason WaitForStop();
  // From any thread: WaitForStop returns kAsked.
  void Ask();

 private:
  int signals_ = -1;
  int parent_ = -1;
  int asked_ = -1;
};

}  // namespace meshnet
