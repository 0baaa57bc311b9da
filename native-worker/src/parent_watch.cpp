#include "parent_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace meshnet {

ParentWatch::~ParentWatch() {
  for (int fd : {signals_, parent_, asked_}) {
    if (fd >= 0) close(fd);
  }
}

Status ParentWatch::Prepare(int parent_pid) {
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, number);
  if (pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0) return {Code::kInternal, "signals cannot be blocked"};
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  asked_ = eventfd(0, EFD_CLOEXEC);
  if (signals_ < 0 || asked_ < 0) return {Code::kInternal, "no descriptors for signals"};
  if (parent_pid == 0) return {};
  // SIGTERM and not SIGKILL: the signal also comes when only the thread that started us ends.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  parent_ = static_cast<int>(syscall(SYS_pidfd_open, parent_pid, 0));
  if (parent_ < 0) return {Code::kWorkerLost, "the node's process is gone"};
  return {};
}

ParentWatch::Reason ParentWatch::WaitForStop() {
  // poll skips a negative descriptor.
  pollfd watched[] = {
      {signals_, POLLIN, 0}, {parent_, POLLIN, 0}, {asked_, POLLIN, 0}, {parent_ < 0 ? -1 : STDIN_FILENO, POLLIN, 0}};
  for (;;) {
    if (poll(watched, 4, -1) < 0) {
      if (errno == EINTR) continue;
      return Reason::kSignal;
    }
    if (watched[0].revents != 0) return Reason::kSignal;
    if (watched[1].revents != 0) return Reason::kParentGone;
    if (watched[2].revents != 0) return Reason::kAsked;
    if (watched[3].revents != 0) {
      char ignored[256];
      if (read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0 && errno != EINTR) return Reason::kParentGone;
    }
  }
}

void ParentWatch::Ask() {
  const uint64_t one = 1;
  while (write(asked_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

}  // namespace meshnet
