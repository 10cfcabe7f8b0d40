// A process that wants a session which a program has already: of the program's account with another
// key, that may have a cap, or of another account. It enters by the session's name. Until it has
// entered the program goes on, and where it may not enter nothing is taken from the program:
//
//   RV1  whoever is told that it has a session has it on a lease of its own key (books.h)
//   RV2  a lease is on the key of its hold, and what it is charged counts for that key's cap
//   RV3  whoever is refused for want of money has taken no device from anybody
// And K5 of keys.h: no session opens for a key of another account.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/session/core/session_core.h"
#include "tests/sim/books.h"
#include "tests/sim/gateway.h"
#include "tests/sim/world.h"

namespace outboard::sim {

enum class RivalKey { kOther, kCapped, kOfAnotherAccount };

struct Rival {
  RivalKey kind;
  int key;  // its number among the program's
  session::SessionCore core = {};
  std::shared_ptr<ClientConnection> connection = {};

  // What of it is wrong; "": nothing. `session`: that it wanted, of `account`, with this key.
  std::string CheckRefusal(const absl::Status& why, int64_t account, const std::string& key_id,
                           const gateway::SessionId& session, Gateway& gateway) const {
    if (absl::IsUnavailable(why)) return "";  // the gateway stops, or cannot write
    if (kind == RivalKey::kOfAnotherAccount)
      return absl::IsNotFound(why) ? "" : "K5: a stranger is told of the session";
    if (gateway.books().IsOfMoney(account, why))
      return gateway.books().WasThrownOut(session, key_id)
                 ? "RV3: a key that cannot pay took the session from one that does"
                 : "";
    const bool came_late = absl::IsNotFound(why) || absl::IsAborted(why);  // it ended; another one
    return came_late ? "" : "a key of the session's account is refused";
  }
};

}  // namespace outboard::sim
