// The metadata by which a gateway knows whose call it is: "authorization: Bearer <key>".
// An empty key sends none; a private serve asks for none.
#pragma once

#include <grpcpp/client_context.h>

#include <string>

namespace outboard::transport {

inline void AddKey(grpc::ClientContext& context, const std::string& key) {
  if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
}

}  // namespace outboard::transport
