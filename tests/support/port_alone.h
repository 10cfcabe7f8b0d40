// A port of 0 that is this server's own.
#pragma once

#include <grpcpp/server_builder.h>

namespace outboard::test {

// gRPC's servers share their port by default (SO_REUSEPORT). Linux then takes a port that another
// server of the same user has for a free one, too, and gives half of the connections to either:
// those of a test that runs beside.
inline void HaveAPortAlone(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace outboard::test
