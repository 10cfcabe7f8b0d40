#include "compiler/rewrite/match_steps.h"

#include <bit>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/rewrite/rebuild.h"

namespace outboard {
namespace {

using Kind = PatternNode::Kind;

bool IsNumber(const UOp* constant, Kind kind, int64_t number) {
  if (kind == Kind::kFloatBits) return IsFloat(constant->dtype) && ConstantBits(constant) == number;
  if (IsFloat(constant->dtype))
    return ConstantBits(constant) == std::bit_cast<int64_t>(static_cast<double>(number));
  return constant->int_value() == WrapTo(constant->dtype, number) &&
         (!IsBool(constant->dtype) || number == 0 || number == 1);
}

}  // namespace

ConstantClass ClassOfConstant(const UOp* constant) {
  const int64_t bits = ConstantBits(constant);
  if (bits == 0) return ConstantClass::kZero;  // +0.0 too
  if (IsFloat(constant->dtype)) {
    if (bits == std::bit_cast<int64_t>(-0.0)) return ConstantClass::kMinusZero;
    if (bits == std::bit_cast<int64_t>(1.0)) return ConstantClass::kOne;
    return bits == std::bit_cast<int64_t>(-1.0) ? ConstantClass::kMinusOne : ConstantClass::kOther;
  }
  if (bits == 1) return ConstantClass::kOne;
  return !IsBool(constant->dtype) && bits == WrapTo(constant->dtype, -1) ? ConstantClass::kMinusOne
                                                                         : ConstantClass::kOther;
}

ConstantClass ClassOfNumber(const PatternNode& number) {
  if (number.kind == Kind::kFloatBits)
    return number.number == std::bit_cast<int64_t>(-0.0) ? ConstantClass::kMinusZero
                                                         : ConstantClass::kOther;
  switch (number.number) {
    case 0: return ConstantClass::kZero;
    case 1: return ConstantClass::kOne;
    case -1: return ConstantClass::kMinusOne;
    default: return ConstantClass::kOther;
  }
}

MatchSteps::MatchSteps(const Pattern& pattern) {
  uint32_t bound = 0;
  const PatternNode& root = pattern.root();
  for (int i = 0; i < root.source_count; ++i)
    Add(pattern, root.source[i], 0, static_cast<uint8_t>(i), bound);
}

void MatchSteps::Add(const Pattern& pattern, int at, uint8_t place, uint8_t source,
                     uint32_t& bound) {
  const PatternNode& p = pattern.nodes[at];
  const bool known = place == 0;  // the index has looked at the root's sources
  Step step{.kind = Step::Kind::kOperation,
            .op = p.op,
            .place = place,
            .source = source,
            .made = 0,
            .sources = p.source_count,
            .name = p.name,
            .number_kind = p.kind,
            .number = p.number};
  switch (p.kind) {
    case Kind::kAny: return;
    case Kind::kAnyConst:
      if (known) return;
      step.kind = Step::Kind::kConstant;
      break;
    case Kind::kInt:
    case Kind::kFloatBits:
      if (known && ClassOfNumber(p) != ConstantClass::kOther) return;
      step.kind = Step::Kind::kNumber;
      break;
    case Kind::kName:
    case Kind::kConstName:
      step.kind = bound >> p.name & 1     ? Step::Kind::kSameName
                  : p.kind == Kind::kName ? Step::Kind::kName
                                          : Step::Kind::kConstantName;
      bound |= 1u << p.name;
      break;
    case Kind::kOp:
      if (known && p.source_count == 0) return;
      if (p.source_count > 0) {
        OB_CHECK(places_ < kPlacesMax);
        step.made = places_++;
      }
      break;
    default: OB_CHECK(false && "this cannot stand in a match");
  }
  steps_.push_back(step);
  for (int i = 0; i < p.source_count; ++i)
    Add(pattern, p.source[i], step.made, static_cast<uint8_t>(i), bound);
}

bool MatchSteps::Do(const Step& step, std::array<const UOp*, kPlacesMax>& places, Match& match) {
  const UOp* const node = places[step.place]->src[step.source];
  switch (step.kind) {
    case Step::Kind::kOperation:
      if (node->op != step.op) return false;
      if (step.made == 0) return true;
      places[step.made] = node;
      return node->src.size() == static_cast<size_t>(step.sources);
    case Step::Kind::kConstant: return ConstantOf(node) != nullptr;
    case Step::Kind::kNumber: {
      const UOp* const constant = ConstantOf(node);
      return constant != nullptr && IsNumber(constant, step.number_kind, step.number);
    }
    case Step::Kind::kName: match.bound[step.name] = node; return true;
    case Step::Kind::kSameName: return match.bound[step.name] == node;
    case Step::Kind::kConstantName: {
      const UOp* const constant = ConstantOf(node);
      match.bound[step.name] = node;
      return constant != nullptr && IsIntOrBool(constant->dtype);
    }
  }
  return false;
}

}  // namespace outboard
