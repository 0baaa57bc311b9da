// ControlService: the node's calls, each checked for the boot token and answered from the worker's state.
// Threads: gRPC calls it from its own threads.
#pragma once

#include <string>
#include <utility>

#include "control_state.h"
#include "worker.grpc.pb.h"

namespace meshnet {

class ControlService final
    : public meshnet::worker::v1::Worker::WithCallbackMethod_Watch<meshnet::worker::v1::Worker::Service> {
 public:
  ControlService(WorkerState * state, std::string token) : state_(state), token_(std::move(token)) {}

  grpc::Status Describe(grpc::ServerContext * context, const meshnet::worker::v1::DescribeRequest * request,
                        meshnet::worker::v1::Description * reply) override;
  grpc::ServerWriteReactor<meshnet::worker::v1::Event> * Watch(
      grpc::CallbackServerContext * context, const meshnet::worker::v1::WatchRequest * request) override;
  grpc::Status Probe(grpc::ServerContext * context, const meshnet::worker::v1::ProbeRequest * request,
                     meshnet::worker::v1::ProbeReply * reply) override;
  grpc::Status Admit(grpc::ServerContext * context, const meshnet::worker::v1::AdmitRequest * request,
                     meshnet::worker::v1::AdmitReply * reply) override;
  grpc::Status Link(grpc::ServerContext * context, const meshnet::worker::v1::LinkRequest * request,
                    meshnet::worker::v1::LinkReply * reply) override;
  grpc::Status Extend(grpc::ServerContext * context, const meshnet::worker::v1::ExtendRequest * request,
                      meshnet::worker::v1::ExtendReply * reply) override;
  grpc::Status Release(grpc::ServerContext * context, const meshnet::worker::v1::ReleaseRequest * request,
                       meshnet::worker::v1::ReleaseReply * reply) override;
  grpc::Status Drain(grpc::ServerContext * context, const meshnet::worker::v1::DrainRequest * request,
                     meshnet::worker::v1::DrainReply * reply) override;

 private:
  // Refusals are counted and typed; nothing that a library throws gets out.
  template <typename Call>
  grpc::Status Answer(grpc::ServerContext * context, Call call);

  WorkerState * const state_;
  const std::string token_;
};

}  // namespace meshnet
