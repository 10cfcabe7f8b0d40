#include "client/session/estimate/device_class.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/printable.h"
#include "client/session/call_key.h"
#include "client/session/link/grpc_link.h"
#include "proto/account.grpc.pb.h"
#include "wire/status.h"

namespace outboard::session {

absl::StatusOr<std::vector<DeviceClass>> ClassesOf(const std::string& target,
                                                   const std::string& key,
                                                   const Protection& protection) {
  const auto channel = MakeChannel(target, protection);
  if (absl::Status status =
          WaitConnected(*channel, target, std::chrono::milliseconds(kClassesWithin) / 3);
      !status.ok())
    return absl::IsUnavailable(status) ? protection.Explain(target, status) : status;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kClassesWithin);
  AddKey(context, key);
  proto::ListSessionsRequest request;
  request.set_with_classes(true);
  proto::ListSessionsReply reply;
  const grpc::Status status =
      proto::Account::NewStub(channel)->ListSessions(&context, request, &reply);
  if (!status.ok()) return wire::FromGrpc(status);
  if (reply.classes_size() == 0)
    return absl::UnimplementedError("the gateway is too old to name its classes of devices");
  if (reply.classes_size() > kClassesMax)
    return absl::ResourceExhaustedError("the gateway names too many classes");
  std::vector<DeviceClass> classes;
  for (const proto::DeviceClass& of : reply.classes()) {
    const auto rate = [](double value) { return std::isfinite(value) ? std::max(0.0, value) : 0; };
    classes.push_back({.name = Printable(of.name(), /*bytes_max=*/64),
                       .gflops = rate(of.rates().gflops()),
                       .memory_gb_per_s = rate(of.rates().memory_gb_per_s()),
                       .memory_bytes = of.memory_bytes(),
                       .run_per_hour_micro_usd = of.run_per_hour_micro_usd(),
                       .tf32_gflops = rate(of.tf32_gflops()),
                       .half_gflops = rate(of.half_gflops()),
                       .f8_gflops = rate(of.f8_gflops()),
                       .rates_on_paper = of.rates_on_paper()});
  }
  return classes;
}

}  // namespace outboard::session
