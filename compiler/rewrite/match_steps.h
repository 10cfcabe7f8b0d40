// The checks of a pattern that remain once the operations of the root and of its sources are known
// to match (matcher.h): a short list without branches, run from left to right.
//
// Threads: immutable once made. Errors: none.
#pragma once

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "compiler/rewrite/pattern.h"

namespace outboard {

// The constants that the index of a Matcher distinguishes. Any other number in a pattern is checked
// by a step.
enum class ConstantClass : uint8_t { kZero, kOne, kMinusOne, kMinusZero, kOther };
inline constexpr int kConstantClasses = 5;
ConstantClass ClassOfConstant(const UOp* constant);
// Returns the class of the number at a node of kind kInt or kFloatBits; it is the same in every
// type that can represent it.
ConstantClass ClassOfNumber(const PatternNode& number);

class MatchSteps {
 public:
  // `pattern` with the operands of commutative operations in one of their orders.
  explicit MatchSteps(const Pattern& pattern);

  // Returns whether `root` matches, and binds the names if so. Leaves `match.root` unchanged.
  bool Run(const UOp* root, Match& match) const {
    std::array<const UOp*, kPlacesMax> places;
    places[0] = root;
    for (const Step& step : steps_)
      if (!Do(step, places, match)) return false;
    return true;
  }

 private:
  static constexpr int kPlacesMax = 12;  // nodes of a match that have sources of their own

  struct Step {
    enum class Kind : uint8_t {
      kOperation,     // it is of `op`; recorded as a place if it has sources in the pattern
      kConstant,      // it is any constant
      kNumber,        // it is the constant `number`
      kName,          // it is bound to `name`
      kSameName,      // it is what `name` is bound to
      kConstantName,  // it is a constant of an integer type or bool, and bound to `name`
    };
    Kind kind;
    Op op;
    uint8_t place;  // whose source it is
    uint8_t source;
    uint8_t made;    // its own place; 0: none
    int8_t sources;  // how many sources it must have; 0: any number
    int8_t name;
    PatternNode::Kind number_kind;
    int64_t number;
  };

  void Add(const Pattern& pattern, int at, uint8_t place, uint8_t source, uint32_t& bound);
  static bool Do(const Step& step, std::array<const UOp*, kPlacesMax>& places, Match& match);

  absl::InlinedVector<Step, 4> steps_;
  uint8_t places_ = 1;
};

}  // namespace outboard
