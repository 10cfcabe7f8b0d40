// Which temporaries are written over others (compiler/schedule/in_place.h).
#pragma once

namespace outboard::schedule {

enum class OverwritePolicy {
  kNever,
  kLarge,  // those that are much of the arena, where it becomes smaller
  kAll,    // for tests
};

}  // namespace outboard::schedule
