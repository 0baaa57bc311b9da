#include "control.h"

#include <exception>

#include "boot_token.h"
#include "status_report.h"

namespace meshnet {

namespace wk = meshnet::worker::v1;

template <typename Call>
grpc::Status ControlService::Answer(grpc::ServerContext * context, Call call) {
  if (!HasBootToken(*context, token_)) return BootTokenRefused();
  Status status;
  try {
    status = call();
  } catch (const std::exception & error) {
    status = Status(Code::kInternal, error.what());
  }
  if (!status.ok()) state_->Refused(status.code());
  return ToGrpc(status, context);
}

grpc::Status ControlService::Describe(grpc::ServerContext * context, const wk::DescribeRequest *,
                                      wk::Description * reply) {
  return Answer(context, [&] {
    state_->Describe(reply);
    return Status();
  });
}

grpc::ServerWriteReactor<wk::Event> * ControlService::Watch(grpc::CallbackServerContext * context,
                                                            const wk::WatchRequest * request) {
  if (!HasBootToken(*context, token_)) {
    class Refusal final : public grpc::ServerWriteReactor<wk::Event> {
     public:
      Refusal() { Finish(BootTokenRefused()); }
      void OnDone() override { delete this; }
    };
    return new Refusal;
  }
  wk::Event first;
  state_->Describe(first.mutable_state_changed());
  return state_->watchers()->Open(request->report_interval_ms(), first);
}

grpc::Status ControlService::Probe(grpc::ServerContext * context, const wk::ProbeRequest * request,
                                   wk::ProbeReply * reply) {
  return Answer(context, [&] { return state_->Probe(*request, reply); });
}

grpc::Status ControlService::Admit(grpc::ServerContext * context, const wk::AdmitRequest * request,
                                   wk::AdmitReply * reply) {
  return Answer(context, [&] { return state_->Admit(*request, reply); });
}

grpc::Status ControlService::Link(grpc::ServerContext * context, const wk::LinkRequest * request,
                                  wk::LinkReply * reply) {
  return Answer(context, [&] { return state_->Link(*request, reply); });
}

grpc::Status ControlService::Extend(grpc::ServerContext * context, const wk::ExtendRequest * request,
                                    wk::ExtendReply *) {
  return Answer(context, [&] { return state_->Extend(*request); });
}

grpc::Status ControlService::Release(grpc::ServerContext * context, const wk::ReleaseRequest * request,
                                     wk::ReleaseReply *) {
  return Answer(context, [&] { return state_->Release(*request); });
}

grpc::Status ControlService::Drain(grpc::ServerContext * context, const wk::DrainRequest *, wk::DrainReply * reply) {
  return Answer(context, [&] {
    reply->set_lanes(state_->Drain());
    return Status();
  });
}

}  // namespace meshnet
