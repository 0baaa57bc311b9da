// Stream: one live gRPC call that carries packets both ways as opaque bytes, from either end.
// Threads: every method from any thread, never blocking. Packets come one at a time from gRPC's threads; the end may
// come while a packet is being heard.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshnet {

inline constexpr char kStreamMethod[] = "/meshnet.seam.v1.Seam/Stream";

class StreamEvents {
 public:
  virtual ~StreamEvents() = default;
  // `bytes` is valid during the call. The next packet is read after it returns.
  virtual void OnPacket(std::string_view bytes) = 0;
  // Nothing more will be read. Once. `half_open`: what is sent may still arrive.
  virtual void OnEnd(const grpc::Status & status, bool half_open) = 0;
};

// Of all streams of the process.
class Traffic {
 public:
  std::atomic<uint64_t> bytes_in{0}, bytes_out{0};
  std::atomic<uint64_t> packets_in{0}, packets_out{0};

  void DialledBegins();
  void DialledEnded();
  // Until gRPC refers to no dialled stream any more. False at the deadline: on a dead link that may take for ever.
  bool WaitNoDialled(std::chrono::steady_clock::time_point deadline);

 private:
  std::mutex mu_;
  std::condition_variable ended_;
  int dialled_ = 0;
};

// A buffer that owns the packet; copies of it share the bytes.
grpc::ByteBuffer ToBuffer(std::string packet);

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  virtual ~Stream() = default;

  // Who hears the next event; when the end has come already, that one is told at once. From inside OnPacket, or before
  // the stream runs.
  void SetEvents(std::shared_ptr<StreamEvents> events);
  // Queued behind what was sent before; dropped when the stream has ended.
  void Send(grpc::ByteBuffer packet);
  // After what is queued, this end is done.
  void Finish(grpc::Status status = grpc::Status::OK);
  // At once. The call itself may take long to die when its link is dead: nobody should wait for OnEnd.
  void Abort();
  size_t queued() const;

 protected:
  enum class Side { kServer, kClient };
  Stream(Side side, std::shared_ptr<Traffic> traffic) : side_(side), traffic_(std::move(traffic)) {}

  // The operations of the two kinds of reactor. Under the lock only Cancel: it runs no callback, and the lock keeps
  // the call from going away.
  virtual void StartReading(grpc::ByteBuffer * into) = 0;
  virtual void StartWriting(const grpc::ByteBuffer * packet) = 0;
  virtual void EndWriting(const grpc::Status & status) = 0;  // server: the end of the call
  virtual void Cancel() = 0;
  virtual void Release() {}  // client: no operation will be started any more

  void Read();
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  void WritingEnded();
  void Ended(const grpc::Status & status, bool half_open);
  // The last call from gRPC, in two halves: no operation from the first on; after the second the object may be gone.
  void Closing();
  void Done();
  Traffic * traffic() const { return traffic_.get(); }

  std::shared_ptr<Stream> self_;  // until Done: gRPC refers to the object

 private:
  void Pump();

  std::shared_ptr<StreamEvents> events() const;

  const Side side_;
  const std::shared_ptr<Traffic> traffic_;
  grpc::ByteBuffer reading_, writing_buffer_;

  mutable std::mutex mu_;
  std::shared_ptr<StreamEvents> events_;
  std::deque<grpc::ByteBuffer> queue_;
  grpc::Status finish_status_;
  bool writing_ = false;  // an operation that ends in WriteDone or WritingEnded
  int starting_ = 0;      // reads that are just being started
  bool finish_wanted_ = false;
  bool writing_ended_ = false;  // EndWriting was called
  bool read_ended_ = false;
  bool released_ = false;
  bool told_end_ = false;
  bool done_ = false;
};

// The reactor for an incoming call. `connect` gets the stream before anything is read and returns who hears it; without
// anybody the call is refused with the status that it left.
grpc::ServerGenericBidiReactor * AcceptStream(
    grpc::GenericCallbackServerContext * context, std::shared_ptr<Traffic> traffic,
    const std::function<std::shared_ptr<StreamEvents>(const std::shared_ptr<Stream> &, grpc::Status *)> & connect);

// Starts a call on the channel. The caller keeps the channel until it has heard OnEnd: gRPC 1.51 must not lose its last
// channel on one of its own threads, which it would then wait for.
std::shared_ptr<Stream> DialStream(const std::shared_ptr<grpc::Channel> & channel,
                                   const std::vector<std::pair<std::string, std::string>> & metadata,
                                   std::shared_ptr<Traffic> traffic, std::shared_ptr<StreamEvents> events);

}  // namespace meshnet
