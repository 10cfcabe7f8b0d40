// Names of types and special registers, and the rows of a function.
#include "tests/gpu/text/parser.h"

namespace outboard::ptx {
namespace {

struct NamedType {
  const char* name;
  Type type;
};
constexpr NamedType kTypes[] = {
    {"pred", Type::kPred},    {"b8", Type::kB8},     {"b16", Type::kB16},
    {"b32", Type::kB32},      {"b64", Type::kB64},   {"b128", Type::kB128},
    {"u8", Type::kU8},        {"u16", Type::kU16},   {"u32", Type::kU32},
    {"u64", Type::kU64},      {"s8", Type::kS8},     {"s16", Type::kS16},
    {"s32", Type::kS32},      {"s64", Type::kS64},   {"f16", Type::kF16},
    {"f16x2", Type::kF16x2},  {"bf16", Type::kBf16}, {"bf16x2", Type::kBf16x2},
    {"f32", Type::kF32},      {"f64", Type::kF64},   {"tf32", Type::kTf32},
    {"e4m3", Type::kE4m3},    {"e5m2", Type::kE5m2}, {"e4m3x2", Type::kE4m3x2},
    {"e5m2x2", Type::kE5m2x2}};

struct NamedSpecial {
  const char* name;
  Special special;
};
constexpr NamedSpecial kSpecials[] = {{"%tid.x", Special::kTidX},
                                      {"%tid.y", Special::kTidY},
                                      {"%tid.z", Special::kTidZ},
                                      {"%ntid.x", Special::kNtidX},
                                      {"%ntid.y", Special::kNtidY},
                                      {"%ntid.z", Special::kNtidZ},
                                      {"%ctaid.x", Special::kCtaidX},
                                      {"%ctaid.y", Special::kCtaidY},
                                      {"%ctaid.z", Special::kCtaidZ},
                                      {"%nctaid.x", Special::kNctaidX},
                                      {"%nctaid.y", Special::kNctaidY},
                                      {"%nctaid.z", Special::kNctaidZ},
                                      {"%laneid", Special::kLaneid},
                                      {"%warpid", Special::kWarpid},
                                      {"%nwarpid", Special::kNwarpid},
                                      {"%smid", Special::kSmid},
                                      {"%nsmid", Special::kNsmid},
                                      {"%gridid", Special::kGridid},
                                      {"%lanemask_eq", Special::kLanemaskEq},
                                      {"%lanemask_le", Special::kLanemaskLe},
                                      {"%lanemask_lt", Special::kLanemaskLt},
                                      {"%lanemask_ge", Special::kLanemaskGe},
                                      {"%lanemask_gt", Special::kLanemaskGt},
                                      {"%clusterid.x", Special::kClusteridX},
                                      {"%clusterid.y", Special::kClusteridY},
                                      {"%clusterid.z", Special::kClusteridZ},
                                      {"%nclusterid.x", Special::kNclusteridX},
                                      {"%nclusterid.y", Special::kNclusteridY},
                                      {"%nclusterid.z", Special::kNclusteridZ},
                                      {"%cluster_ctaid.x", Special::kClusterCtaidX},
                                      {"%cluster_ctaid.y", Special::kClusterCtaidY},
                                      {"%cluster_ctaid.z", Special::kClusterCtaidZ},
                                      {"%cluster_nctaid.x", Special::kClusterNctaidX},
                                      {"%cluster_nctaid.y", Special::kClusterNctaidY},
                                      {"%cluster_nctaid.z", Special::kClusterNctaidZ},
                                      {"%cluster_ctarank", Special::kClusterCtarank},
                                      {"%cluster_nctarank", Special::kClusterNctarank},
                                      {"%dynamic_smem_size", Special::kDynamicShared},
                                      {"%total_smem_size", Special::kTotalShared},
                                      {"%is_explicit_cluster", Special::kIsExplicitCluster}};

}  // namespace

int BytesOf(Type type) {
  switch (type) {
    case Type::kNone: return 0;
    case Type::kPred:
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
    case Type::kE4m3:
    case Type::kE5m2: return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16:
    case Type::kE4m3x2:
    case Type::kE5m2x2: return 2;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64: return 8;
    case Type::kB128: return 16;
    default: return 4;
  }
}
bool IsSigned(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}
bool IsFloat(Type type) { return type >= Type::kF16; }

Type TypeOf(std::string_view name) {
  for (const NamedType& type : kTypes)
    if (name == type.name) return type.type;
  return Type::kNone;
}

Special SpecialOf(std::string_view name, bool* found) {
  *found = true;
  for (const NamedSpecial& special : kSpecials)
    if (name == special.name) return special.special;
  *found = false;
  return Special::kTidX;
}

int FunctionBuilder::Constant(uint64_t bits) {
  const auto [it, added] = constants_.try_emplace(bits, -1);
  if (added) {
    it->second = NewRow();
    function_->constants.push_back({it->second, bits});
  }
  return it->second;
}
int FunctionBuilder::SpecialRow(Special special) {
  const auto [it, added] = specials_.try_emplace(special, -1);
  if (added) {
    it->second = NewRow();
    function_->specials.push_back({it->second, special});
  }
  return it->second;
}
int FunctionBuilder::GlobalRow(const std::string& name) {
  const auto [it, added] = globals_.try_emplace(name, -1);
  if (added) {
    it->second = NewRow();
    function_->globals.push_back({it->second, name});
  }
  return it->second;
}
int FunctionBuilder::CarryRow() {
  if (function_->carry_row < 0) function_->carry_row = NewRow();
  return function_->carry_row;
}

}  // namespace outboard::ptx
