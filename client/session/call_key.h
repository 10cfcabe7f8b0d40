// Adds the metadata by which a gateway identifies the caller: "authorization: Bearer <key>". An
// empty key adds none; a private worker requires none.
#pragma once

#include <grpcpp/client_context.h>

#include <string>

namespace outboard::session {

inline void AddKey(grpc::ClientContext& context, const std::string& key) {
  if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
}

}  // namespace outboard::session
