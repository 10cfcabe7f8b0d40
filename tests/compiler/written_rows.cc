// What programs are written with beside products: norms, sums and scans of rows, selections by
// index, movements, and lengths that variables bound.
#include <algorithm>
#include <cmath>

#include "client/ops/index/index.h"
#include "tests/compiler/program_writer.h"

namespace outboard::test {

void ProgramWriter::Norm() {
  const Value x = Pick();
  if (x.t.rank() == 0 || x.size > 20) return;
  const int64_t axis = r_.OneIn(4) ? r_.Below(x.t.rank()) : x.t.rank() - 1;
  const int64_t length = x.t.shape()[axis];
  switch (r_.Below(6)) {
    case 0: Keep(x.t.softmax(axis), 1, absl::StrCat(x.name, ".softmax(", axis, ")")); return;
    case 1:
      Keep(x.t.log_softmax(axis), 10, absl::StrCat(x.name, ".log_softmax(", axis, ")"));
      return;
    case 2: {
      const Tensor f = x.t.cast(DType::kF32);
      Tensor y = f * ((f * f).mean(axis, true) + 1e-3).rsqrt();
      std::string text = absl::StrCat("rms norm of ", x.name, " over ", axis);
      if (axis == x.t.rank() - 1 && r_.OneIn(2)) {
        const NamedTensor w = Weight({length}, 3);
        y = y * w.t;
        absl::StrAppend(&text, " * ", w.name);
      }
      Keep(y.cast(dtype_), 3, text);
      return;
    }
    case 3: {
      const Tensor centred = x.t - x.t.mean(axis, true);
      Keep(centred / ((centred * centred).sum(axis, true) + 0.5).sqrt(), 2,
           absl::StrCat(x.name, " centred over ", axis, " / norm"));
      return;
    }
    default: {
      if (length == 1) return;
      Tensor y = x.t.layernorm(axis, 1e-2);
      std::string text = absl::StrCat(x.name, ".layernorm(", axis, ")");
      if (axis == x.t.rank() - 1 && r_.OneIn(2)) {
        const NamedTensor w = Weight({length}, 3), b = Weight({length}, 3);
        y = y * w.t + b.t;
        absl::StrAppend(&text, " * ", w.name, " + ", b.name);
      }
      Keep(y, 4, text);
      return;
    }
  }
}

void ProgramWriter::Scan() {
  const Value x = Pick();
  if (x.t.rank() == 0) return;
  const int64_t axis = r_.Below(x.t.rank()), length = x.t.shape()[axis];
  const double grows = std::sqrt(static_cast<double>(length));
  switch (x.t.rank() < 2 ? 0 : r_.Below(5)) {
    case 0:
    case 1: {
      Tensor y = x.t.cumsum(axis);
      std::string text = absl::StrCat(x.name, ".cumsum(", axis, ")");
      if (r_.OneIn(2)) {
        y = y / grows;
        text += " / sqrt(n)";
        Keep(y, x.size * 2, text);
      } else {
        Keep(y, x.size * grows, text);
      }
      return;
    }
    case 2: {
      const int64_t shift = r_.Below(5) - 2;
      Keep(x.t.tril(shift), x.size, absl::StrCat(x.name, ".tril(", shift, ")"));
      return;
    }
    case 3: Keep(x.t.triu(1), x.size, absl::StrCat(x.name, ".triu(1)")); return;
    default: {
      const int64_t n = x.t.shape()[x.t.rank() - 2];
      if (!Spend(static_cast<double>(n * Count(x.t.shape())))) return;
      const NamedTensor decay = Floats({n, n}, 1 / std::sqrt(static_cast<double>(n)), x.t.dtype());
      Keep(decay.t.tril().matmul(x.t), x.size, absl::StrCat(decay.name, ".tril() @ ", x.name));
      return;
    }
  }
}

void ProgramWriter::Fold() {
  const Value x = Pick();
  if (x.t.rank() == 0) return;
  const int64_t rank = x.t.rank();
  Axes axes;
  switch (r_.Below(5)) {
    case 0:
    case 1: axes = Axes(rank - 1); break;
    case 2: axes = Axes(0); break;
    case 3:
      for (int64_t a = 0; a < rank; ++a)
        if (r_.OneIn(2)) axes.push_back(a);
      if (axes.empty()) axes = Axes(rank - 1);
      break;
    default:
      for (int64_t a = 0; a + 1 < rank; ++a) axes.push_back(a);
      if (axes.empty()) axes = Axes(0);
  }
  const std::string text = absl::StrCat("([", absl::StrJoin(axes, ", "), "])");
  int64_t length = 1;
  for (const int64_t axis : axes) length *= x.t.shape()[axis];
  const double shrinks = 1 / std::sqrt(static_cast<double>(length));
  switch (r_.Below(narrow_ && with_gradients_ ? 6 : 8)) {
    case 0:
      Keep(x.t.sum(axes) * shrinks, x.size, absl::StrCat(x.name, ".sum", text, " / sqrt(n)"));
      return;
    case 1: Keep(x.t.mean(axes, true), x.size, absl::StrCat(x.name, ".mean", text)); return;
    case 2:
      Keep((x.t * x.t).mean(axes), x.size * x.size,
           absl::StrCat("square of ", x.name, " .mean", text));
      return;
    case 3: {
      const Value y = LikeInput(x);
      Keep((x.t * y.t).sum(axes) * shrinks, x.size,
           absl::StrCat("(", x.name, " * ", y.name, ").sum", text, " / sqrt(n)"));
      return;
    }
    case 4:
      Keep(x.t - x.t.mean(axes, true), x.size, absl::StrCat(x.name, " - its mean", text));
      return;
    case 5:
      if (x.size < 20)
        Keep(x.t.logsumexp(axes), x.size + 7, absl::StrCat(x.name, ".logsumexp", text));
      return;
    case 6: Keep(x.t.max(axes), x.size, absl::StrCat(x.name, ".max", text)); return;
    default:
      // Of inputs, whose largest elements are no matter of rounding.
      const NamedTensor y = Floats(x.t.shape());
      results_.push_back({y.t.argmax(axes[0]), absl::StrCat(y.name, ".argmax(", axes[0], ")")});
  }
}

SymInt ProgramWriter::Length(int64_t least, int64_t most) {
  const int64_t bound = least + r_.Below(most - least + 1);
  Say("n = Variable(", least, ", ", most, ").bind(", bound, ")");
  return Variable("n", least, most).bind(bound);
}

void ProgramWriter::BoundedAttention() {
  const int64_t heads = 1 + r_.Below(4),
                d = std::vector<int64_t>{16, 32, 64, 64, 80, 128}[r_.Below(6)];
  const int64_t keys = Size(2, 700),
                queries = r_.OneIn(2) ? 1 : 1 + r_.Below(std::min<int64_t>(keys, 20));
  const int64_t groups = heads % 2 == 0 && r_.OneIn(2) ? heads / 2 : heads;
  const SymInt n = Length(queries, keys);
  const int64_t form = r_.Below(3);  // [h, n, d], [n, h, d], [h, d, n]
  std::string text;
  const auto cache = [&] {
    const NamedTensor m = Floats(form == 0   ? Dims{groups, keys, d}
                                 : form == 1 ? Dims{keys, groups, d}
                                             : Dims{groups, d, keys});
    text += m.name + " ";
    Tensor t = m.t;
    if (form == 0 && queries == 1 && r_.OneIn(2)) {
      const NamedTensor fresh = Floats({groups, 1, d});
      const Tensor is_row = Tensor::arange(keys).reshape({1, keys, 1}) == n - 1;
      caches_.push_back(m.t);
      Tensor renewed = is_row.where(fresh.t, m.t);
      caches_.back().assign(renewed);
      t = caches_.back();
      text += absl::StrCat("(row n - 1 = ", fresh.name, ") ");
    }
    t = t.slice(form == 0 ? 1 : form == 1 ? 0 : 2, 0, n);
    if (form == 1) t = t.transpose(0, 1);
    if (form == 2) t = t.transpose(1, 2);
    return t.unsqueeze(1);  // [groups, 1, n, d]
  };
  const Tensor k = cache(), v = cache();
  const NamedTensor q = Floats({groups, heads / groups, queries, d});
  const bool wide = narrow_ && r_.OneIn(2);
  Tensor scores = q.t.matmul(k.transpose(), wide ? std::optional(DType::kF32) : std::nullopt) *
                  (1 / std::sqrt(static_cast<double>(d)));
  const bool causal = r_.OneIn(2);
  if (causal)
    scores = (Tensor::arange(n) > Tensor::arange(queries).reshape({queries, 1}) + n - queries)
                 .where(-kInfinity, scores);
  const Tensor y = scores.softmax().cast(dtype_).matmul(v);
  results_.push_back({y, absl::StrCat("softmax(", q.name, " @ k.T", causal ? ", causal" : "",
                                      wide ? ", f32" : "", ") @ v of ", text, "form ", form)});
  if (r_.OneIn(2)) {
    const int64_t out = Size(1, 300);
    const NamedTensor w = Weight({heads * d, out}, heads * d);
    const Tensor rows =
        y.reshape({heads, queries, d}).transpose(0, 1).reshape({queries, heads * d});
    results_.push_back({rows.matmul(w.t), absl::StrCat("its heads merged @ ", w.name)});
  }
}

void ProgramWriter::BoundedRows() {
  const int64_t rows = Size(2, 700), k = Size(1, std::min<int64_t>(600, kElementsMax / rows));
  const SymInt n = Length(r_.OneIn(4) ? 0 : 1, rows);
  const NamedTensor x = Floats({rows, k});
  Tensor t = x.t.slice(0, 0, n);
  std::string text = x.name + "[:n]";
  if (r_.OneIn(3)) {
    // The variable bounds what is summed.
    const int64_t m = Columns(rows, k);
    if (m > 0) {
      const NamedTensor w = Weight({rows, m}, rows);
      results_.push_back(
          {t.transpose().matmul(w.t.slice(0, 0, n)), absl::StrCat(text, ".T @ ", w.name, "[:n]")});
    }
  }
  if (r_.OneIn(2)) {
    const int64_t m = Columns(rows, k);
    if (m > 0) {
      const NamedTensor w = Weight({k, m}, k);
      t = t.matmul(w.t);
      text = absl::StrCat(text, " @ ", w.name);
      double size = 1;
      if (r_.OneIn(2)) text = absl::StrCat("(", text, ")", Act(t, size));
    }
  }
  if (r_.OneIn(3)) {
    t = t.softmax();
    text = absl::StrCat("softmax(", text, ")");
  }
  switch (r_.Below(6)) {
    case 0: results_.push_back({t.sum(0), absl::StrCat("(", text, ").sum(0)")}); break;
    case 1: results_.push_back({t.sum({0, 1}), absl::StrCat("(", text, ").sum()")}); break;
    case 2:
      results_.push_back({(t * t).sum(1), absl::StrCat("square of (", text, ").sum(1)")});
      break;
    case 3: results_.push_back({t - t.mean(1, true), absl::StrCat(text, " - its mean(1)")}); break;
    case 4: {
      if (rows * rows > kElementsMax || t.rank() != 2) break;
      const Tensor scores = t.matmul(t.transpose()) * 0.2;
      results_.push_back(
          {scores.softmax().matmul(t), absl::StrCat("softmax(y @ y.T / 5) @ y of y = ", text)});
      break;
    }
    default: results_.push_back({t.max(Axes(1)), absl::StrCat("(", text, ").max(1)")}); break;
  }
  results_.push_back({t, text});
}

void ProgramWriter::Gather() {
  const Value x = Pick();
  if (x.t.rank() == 0) return;
  const Dims dims = x.t.shape();
  const int64_t axis = r_.Below(x.t.rank()), count = Size(1, 257);
  Dims of_y = dims;
  of_y[axis] = count;
  if (Count(of_y) > kElementsMax || Count(of_y) * dims[axis] > 6'000'000) return;
  if (r_.OneIn(3)) {
    if (Count(of_y) > 4000) return;
    const NamedTensor i = Indices(of_y, dims[axis]);
    Keep(x.t.gather(axis, i.t), x.size, absl::StrCat(x.name, ".gather(", axis, ", ", i.name, ")"));
    return;
  }
  const NamedTensor i = Indices({count}, dims[axis]);
  Keep(x.t.take(i.t, axis), x.size, absl::StrCat(x.name, ".take(", i.name, ", ", axis, ")"));
}

void ProgramWriter::Scatter() {
  const auto x = PickWhere([](const Value& x) { return x.t.rank() == 2; });
  if (!x) return;
  const int64_t rows = x->t.shape()[0], width = x->t.shape()[1], count = Size(1, 300);
  if (count * width > kElementsMax || count * width * rows > 6'000'000) return;
  const NamedTensor i = Indices({rows}, count);
  switch (r_.Below(3)) {
    case 0: {
      const Tensor hot = i.t.one_hot(count, x->t.dtype());
      Keep(hot.transpose().matmul(x->t), x->size * 3,
           absl::StrCat("one_hot(", i.name, ").T @ ", x->name));
      return;
    }
    case 1: {
      const Tensor y = Input({count, width}, x->t.dtype(), {});
      const std::string name = Named(y, "x");
      Keep(scatter_reduce(y, 0, i.t.reshape({rows, 1}).expand({rows, width}), x->t,
                          ScatterReduce::kSum),
           x->size * 3, absl::StrCat(name, ".scatter_add(0, ", i.name, ", ", x->name, ")"));
      return;
    }
    default: {
      const Tensor hot = (i.t.reshape({1, rows}) == Tensor::arange(count).reshape({count, 1}));
      Keep(hot.unsqueeze(2).where(x->t.unsqueeze(0), 0).sum(1), x->size * 3,
           absl::StrCat("sums of rows of ", x->name, " by ", i.name));
    }
  }
}

// Of inputs, which equal elements hardly have: which of two nearly equal values is the larger one
// is a matter of rounding.
void ProgramWriter::Ranked() {
  const int64_t rows = Size(1, 40), length = Size(1, 300);
  if (rows * length * length > 1'500'000) return;
  const NamedTensor x = Floats({rows, length}, 1, DType::kF32);
  const int64_t axis = r_.Below(2), most = axis == 0 ? rows : length;
  const bool descending = r_.OneIn(2);
  if (r_.OneIn(2)) {
    const int64_t k = 1 + r_.Below(std::min<int64_t>(most, 8));
    const Sorted top = topk(x.t, k, axis, descending);
    results_.push_back({top.indices, "its indices"});
    Keep(top.values, 1, absl::StrCat(x.name, ".topk(", k, ", ", axis, ", ", descending, ")"));
    return;
  }
  const Sorted sorted = sort(x.t, axis, descending);
  results_.push_back({sorted.indices, "its indices"});
  Keep(sorted.values, 1, absl::StrCat(x.name, ".sort(", axis, ", ", descending, ")"));
}

void ProgramWriter::Move() {
  const Value x = Pick();
  const int64_t rank = x.t.rank();
  if (rank == 0) return;
  const Dims dims = x.t.shape();
  const int64_t axis = r_.Below(rank), length = dims[axis];
  const auto keep = [&](const Tensor& t, const std::string& text) {
    Keep(t, x.size, absl::StrCat(x.name, text));
  };
  switch (r_.Below(8)) {
    case 0: return keep(x.t.flip(axis), absl::StrCat(".flip(", axis, ")"));
    case 1: {
      if (length < 2) return;
      const int64_t begin = r_.Below(length / 2 + 1);
      const int64_t end = r_.OneIn(2) ? length : begin + 1 + r_.Below(length - begin);
      return keep(x.t.slice(axis, begin, end),
                  absl::StrCat(".slice(", axis, ", ", begin, ", ", end, ")"));
    }
    case 2: {
      if (rank < 2) return;
      const int64_t other = (axis + 1 + r_.Below(rank - 1)) % rank;
      return keep(x.t.transpose(axis, other), absl::StrCat(".transpose(", axis, ", ", other, ")"));
    }
    case 3: {
      if (rank == 2) {
        for (const int64_t parts : {4, 3, 2})
          if (dims[0] % parts == 0 && dims[0] > parts)
            return keep(x.t.reshape({parts, dims[0] / parts, dims[1]}),
                        absl::StrCat(".reshape(", parts, ", -1, k)"));
        return;
      }
      if (rank == 4) return keep(x.t.flatten(2).transpose(1, 2), ".flatten(2).transpose(1, 2)");
      if (rank == 1) return keep(x.t.unsqueeze(0), ".unsqueeze(0)");
      return keep(x.t.reshape({dims[0] * dims[1], Count(dims) / dims[0] / dims[1]}),
                  ".flatten(0, 1)");
    }
    case 4: {
      const int64_t shift = r_.OneIn(2) ? 1 : length / 2;
      return keep(x.t.roll(shift, axis), absl::StrCat(".roll(", shift, ", ", axis, ")"));
    }
    case 5: {
      std::vector<std::pair<SymInt, SymInt>> sides(static_cast<size_t>(rank));
      sides[axis] = {r_.Below(3), r_.Below(3)};
      if (Count(dims) / length * (length + 4) > kElementsMax) return;
      return keep(x.t.pad(sides), absl::StrCat(".pad(axis ", axis, ": ", sides[axis].first.value(),
                                               ", ", sides[axis].second.value(), ")"));
    }
    case 6: {
      if (length < 3) return;
      const int64_t step = r_.OneIn(2) ? 2 : -2;
      if (axis != 0) return;
      return keep(x.t[Slice{{}, {}, step}], absl::StrCat("[::", step, "]"));
    }
    default: {
      if (2 * Count(dims) > kElementsMax) return;
      Dims times(static_cast<size_t>(rank), 1);
      times[axis] = 2;
      return keep(x.t.repeat(times), absl::StrCat(".repeat(2 along ", axis, ")"));
    }
  }
}

void ProgramWriter::Elementwise() {
  const Value x = Pick();
  const auto keep = [&](const Tensor& t, double size, const std::string& text) {
    Keep(t, size, absl::StrCat(text, " of ", x.name));
  };
  switch (r_.Below(11)) {
    case 0: return keep(x.t * 0.3 + 1.5, x.size + 1.5, "* 0.3 + 1.5");
    case 1: return keep(x.t.tanh(), 1, "tanh");
    case 2: return keep((x.t * x.t + 1).log(), 5, "log(1 + square)");
    case 3: return keep((-(x.t * x.t)).exp(), 1, "exp(-square)");
    case 4: return keep(x.t / ((x.t * x.t) + 1), 1, "x / (1 + square)");
    case 5: {
      if (x.t.rank() == 0) return;
      const NamedTensor b = Weight({x.t.shape().back()}, 3);
      return keep(x.t * b.t, x.size, absl::StrCat("* ", b.name));
    }
    case 6: {
      if (x.t.rank() < 2) return;
      Dims dims = x.t.shape();
      dims.back() = 1;
      const NamedTensor b = Weight(dims, 3);
      return keep(x.t + b.t, x.size + 1, absl::StrCat("+ column ", b.name));
    }
    case 7: {
      const Tensor m = Input(x.t.shape(), DType::kBool, {});
      const std::string name = Named(m, "m");
      return keep(m.where(x.t, 0) * 1.25, x.size, absl::StrCat("where ", name, " * 1.25"));
    }
    case 9: {
      const TrainingMode training(true);
      return keep(x.t.dropout(0.25), x.size * 1.4, "dropout(0.25)");
    }
    case 8: {
      const DType to = r_.OneIn(2) ? DType::kF32 : DType::kBF16;
      narrow_ |= to != DType::kF32;
      return keep(x.t.cast(to), x.size, absl::StrCat("cast ", std::string(Name(to))));
    }
    default: {
      if (x.t.rank() == 0) return;
      const int64_t half = x.t.shape().back() / 2;
      if (half == 0 || x.t.shape().back() % 2 != 0) return;
      // Rotary positions.
      const Tensor a = x.t.slice(-1, 0, half), b = x.t.slice(-1, half, 2 * half);
      const NamedTensor c = Floats({half}, 1, x.t.dtype()), s = Floats({half}, 1, x.t.dtype());
      return keep(Tensor::cat({a * c.t - b * s.t, b * c.t + a * s.t}, -1), 2 * x.size,
                  absl::StrCat("rotated by ", c.name, ", ", s.name));
    }
  }
}

void ProgramWriter::Join() {
  const Value x = Pick();
  if (x.t.rank() == 0) return;
  const int64_t axis = r_.Below(x.t.rank());
  Dims dims = x.t.shape();
  const auto other = PickWhere([&](const Value& y) {
    if (y.t.rank() != x.t.rank() || y.t.dtype() != x.t.dtype()) return false;
    for (int64_t a = 0; a < y.t.rank(); ++a)
      if (a != axis && y.t.shape()[a] != dims[a]) return false;
    return true;
  });
  Value y;
  if (other && r_.OneIn(2)) {
    y = *other;
  } else {
    dims[axis] = 1 + r_.Below(5);
    const auto [t, name] = Floats(dims, 1, x.t.dtype());
    y = {t, name, 1};
  }
  if (Count(x.t.shape()) + Count(y.t.shape()) > kElementsMax) return;
  Keep(Tensor::cat({x.t, y.t}, axis), std::max(x.size, y.size),
       absl::StrCat("cat(", x.name, ", ", y.name, ", ", axis, ")"));
}

void ProgramWriter::Residual() {
  const Value x = Pick();
  const auto y = PickWhere([&](const Value& y) {
    const Dims a = x.t.shape(), b = y.t.shape();
    if (y.name == x.name || b.size() > a.size()) return false;
    for (size_t i = 1; i <= b.size(); ++i)
      if (b[b.size() - i] != a[a.size() - i] && b[b.size() - i] != 1) return false;
    return true;
  });
  const Value other = y ? *y : LikeInput(x);
  if (r_.OneIn(3))
    Keep(x.t * other.t, x.size * other.size, absl::StrCat(x.name, " * ", other.name));
  else
    Keep(x.t + other.t, x.size + other.size, absl::StrCat(x.name, " + ", other.name));
}

}  // namespace outboard::test
