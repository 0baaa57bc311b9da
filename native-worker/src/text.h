// The text process: a vocabulary without weights, served to the node over a Unix socket.
// Threads: RunText is called once, from main, and returns when the process should exit.
#pragma once

namespace meshnet {

// Serves meshnet.worker.v1.Text until SIGTERM, SIGINT or the end of the parent.
// Flags: --model FILE --control SOCKET --token-file FILE [--parent-pid PID] [--time-limit-ms N].
// The socket appears, for its owner only, when the vocabulary is loaded. Returns the exit code: 0 after an orderly
// stop, 1 when the model or the socket cannot be used, 2 for a wrong command line.
int RunText(int argc, char ** argv);

}  // namespace meshnet
