// einsum and its special cases, in terms of dot_general, transposes and sums.
#include <postern/arrange.h>
#include <postern/products.h>

#include <map>

#include "core/lists.h"
#include "core/text.h"
#include "ops/axes.h"
#include "ops/family.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

/// One for each axis: a letter, or a negative number for the axes of an ellipsis, counted from its
/// end.
using Labels = std::vector<int>;

struct Term {
  Tensor tensor;
  Labels labels;
};

bool has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

/// Labels of "ij...": an ellipsis stands for `hidden` axes.
Labels read_labels(std::string_view text, std::int64_t hidden, std::string_view spec) {
  Labels labels;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.substr(i, 3) == "...") {
      for (std::int64_t k = hidden; k > 0; --k) labels.push_back(static_cast<int>(-k));
      i += 2;
      continue;
    }
    const auto letter = static_cast<unsigned char>(text[i]);
    check(std::isalpha(letter) != 0,
          "einsum: \"{}\" may have letters, commas, \"...\" and \"->\" only", spec);
    labels.push_back(letter);
  }
  return labels;
}

std::int64_t letters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](unsigned char c) { return std::isalpha(c) != 0; });
}

std::string in_words(int label) {
  if (label < 0) return "an axis of the \"...\"";
  return fmt::format("the letter '{}'", static_cast<char>(label));
}
std::string axes_text(std::int64_t n) { return n == 1 ? "1 axis" : fmt::format("{} axes", n); }

struct Sum {
  std::vector<Term> terms;
  Labels result;
};

/// Labels of a result that is not written: those of the ellipsis, then letters that come once, in
/// order.
Labels implied_result(const std::vector<Term>& terms) {
  std::map<int, int> count;
  for (const Term& t : terms)
    for (int label : t.labels) ++count[label];
  Labels result;
  for (const auto& [label, times] : count)
    if (label < 0 || times == 1) result.push_back(label);
  return result;
}

Sum parse(std::string_view spec, TensorSpan operands) {
  const std::size_t arrow = spec.find("->");
  std::string_view left = spec.substr(0, arrow);
  Sum sum;
  std::int64_t most_hidden = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::size_t comma = left.find(',');
    check((comma == std::string_view::npos) == (i + 1 == operands.size()),
          "einsum: \"{}\" is of {}, given are {}", spec,
          plural(static_cast<std::size_t>(std::ranges::count(spec.substr(0, arrow), ',')) + 1,
                 "operand"),
          operands.size());
    const std::string_view text = left.substr(0, comma);
    const std::int64_t hidden = operands[i].rank() - letters_in(text);
    const bool ellipsis = text.find("...") != std::string_view::npos;
    check(hidden == 0 || (ellipsis && hidden > 0),
          "einsum: \"{}\" of \"{}\" names {}, operand {}, {}, has {}", text, spec,
          axes_text(letters_in(text)), i, to_string(operands[i].type()), operands[i].rank());
    sum.terms.push_back({operands[i], read_labels(text, hidden, spec)});
    most_hidden = std::max(most_hidden, hidden);
    if (comma != std::string_view::npos) left.remove_prefix(comma + 1);
  }
  if (arrow == std::string_view::npos) {
    sum.result = implied_result(sum.terms);
    return sum;
  }
  sum.result = read_labels(spec.substr(arrow + 2), most_hidden, spec);
  for (int label : sum.result) {
    check(std::count(sum.result.begin(), sum.result.end(), label) == 1,
          "einsum: the result of \"{}\" has {} twice", spec, in_words(label));
    check(std::any_of(sum.terms.begin(), sum.terms.end(),
                      [&](const Term& t) { return has(t.labels, label); }),
          "einsum: the result of \"{}\" has {}, which no operand has", spec, in_words(label));
  }
  return sum;
}

/// Axes of extent 1 whose label is longer elsewhere are dropped: they broadcast.
void drop_stretched(std::vector<Term>& terms, std::string_view spec) {
  std::map<int, std::int64_t> extents;
  for (const Term& t : terms)
    for (std::size_t i = 0; i < t.labels.size(); ++i) {
      std::int64_t& extent = extents.try_emplace(t.labels[i], 1).first->second;
      const std::int64_t own = t.tensor.dims()[i];
      check(own == 1 || extent == 1 || own == extent,
            "einsum: {} of \"{}\" has two extents, {} and {}", in_words(t.labels[i]), spec, extent,
            own);
      if (own != 1) extent = own;
    }
  for (Term& t : terms) {
    Dims dropped;
    Labels kept;
    for (std::size_t i = 0; i < t.labels.size(); ++i) {
      if (t.tensor.dims()[i] == 1 && extents[t.labels[i]] != 1)
        dropped.push_back(static_cast<std::int64_t>(i));
      else
        kept.push_back(t.labels[i]);
    }
    t = {squeeze(t.tensor, dropped), kept};
  }
}

/// A label that comes twice: the diagonal of its two axes, which goes last.
void take_diagonals(Term& t) {
  for (std::size_t i = 0; i < t.labels.size(); ++i) {
    const auto again = std::find(nth(t.labels, i) + 1, t.labels.end(), t.labels[i]);
    if (again == t.labels.end()) continue;
    const int label = t.labels[i];
    t.tensor = diagonal(t.tensor, 0, static_cast<std::int64_t>(i), again - t.labels.begin());
    t.labels.erase(again);
    t.labels.erase(nth(t.labels, i));
    t.labels.push_back(label);
    --i;
  }
}

/// Sums over the axes whose labels `needed` has not.
template <class Needed>
void sum_unneeded(Term& t, const Needed& needed) {
  Dims axes;
  Labels kept;
  for (std::size_t i = 0; i < t.labels.size(); ++i) {
    if (needed(t.labels[i]))
      kept.push_back(t.labels[i]);
    else
      axes.push_back(static_cast<std::int64_t>(i));
  }
  if (axes.empty()) return;
  Tensor (*total)(const Operand&, const ReduceOptions&) = sum;
  if (t.tensor.dtype() == DType::pred) total = any;  // as products of them are
  t = {total(t.tensor, {.axes = axes}), kept};
}

/// Product of two terms; labels that both have are contracted unless `needed`.
template <class Needed>
Term contracted(const Term& x, const Term& y, const Needed& needed) {
  DotAxes axes;
  Labels batch, own_x, own_y;
  for (std::size_t i = 0; i < x.labels.size(); ++i) {
    const auto other = std::find(y.labels.begin(), y.labels.end(), x.labels[i]);
    if (other == y.labels.end()) {
      own_x.push_back(x.labels[i]);
      continue;
    }
    const auto in_x = static_cast<std::int64_t>(i);
    const std::int64_t in_y = other - y.labels.begin();
    if (needed(x.labels[i])) {
      axes.batch_x.push_back(in_x);
      axes.batch_y.push_back(in_y);
      batch.push_back(x.labels[i]);
    } else {
      axes.contract_x.push_back(in_x);
      axes.contract_y.push_back(in_y);
    }
  }
  for (int label : y.labels)
    if (!has(x.labels, label)) own_y.push_back(label);
  batch.insert(batch.end(), own_x.begin(), own_x.end());
  batch.insert(batch.end(), own_y.begin(), own_y.end());
  return {dot_general(x.tensor, y.tensor, axes), batch};
}

/// Elements of the product of two terms less those of the terms: what contracting them costs in
/// memory.
double growth(const Term& x, const Term& y, const Labels& kept) {
  double size = 1;
  for (const Term* t : {&x, &y})
    for (std::size_t i = 0; i < t->labels.size(); ++i)
      if (has(kept, t->labels[i]) && (t == &x || !has(x.labels, t->labels[i])))
        size *= static_cast<double>(t->tensor.dims()[i]);
  return size - static_cast<double>(x.tensor.size()) - static_cast<double>(y.tensor.size());
}

/// Labels that the result or a term other than two needs.
Labels needed_beyond(const Sum& sum, std::size_t a, std::size_t b) {
  Labels needed = sum.result;
  for (std::size_t i = 0; i < sum.terms.size(); ++i)
    if (i != a && i != b)
      needed.insert(needed.end(), sum.terms[i].labels.begin(), sum.terms[i].labels.end());
  return needed;
}

/// Contracts the pair whose product is smallest compared to what it replaces.
void contract_one(Sum& sum) {
  std::size_t best_a = 0, best_b = 1;
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t a = 0; a < sum.terms.size(); ++a)
    for (std::size_t b = a + 1; b < sum.terms.size(); ++b)
      if (const double g = growth(sum.terms[a], sum.terms[b], needed_beyond(sum, a, b)); g < best) {
        best = g;
        best_a = a;
        best_b = b;
      }
  const Labels needed = needed_beyond(sum, best_a, best_b);
  Term product = contracted(sum.terms[best_a], sum.terms[best_b],
                            [&](int label) { return has(needed, label); });
  sum.terms.erase(nth(sum.terms, best_b));
  sum.terms[best_a] = std::move(product);
}

}  // namespace

Tensor einsum(std::string_view spec, TensorSpan operands, Place place) {
  PlaceScope scope(place);
  check(!operands.empty(), "einsum: at least one operand is needed");
  Type type = operands[0].type();
  for (const Tensor& t : operands) type = promote("einsum", type, t.type());
  Tensors same;
  for (const Tensor& t : operands) same.push_back(convert_to(t, type.dtype));
  Sum sum = parse(spec, same);
  drop_stretched(sum.terms, spec);
  for (std::size_t i = 0; i < sum.terms.size(); ++i) {
    take_diagonals(sum.terms[i]);
    const Labels needed = needed_beyond(sum, i, i);
    sum_unneeded(sum.terms[i], [&](int label) { return has(needed, label); });
  }
  while (sum.terms.size() > 1) contract_one(sum);
  const Term& only = sum.terms[0];
  Dims order;
  for (int label : sum.result)
    order.push_back(std::find(only.labels.begin(), only.labels.end(), label) - only.labels.begin());
  return transpose(only.tensor, order);
}

Tensor dot(const Operand& operand_x, const Operand& operand_y) {
  PlaceScope scope(operand_x.place());
  const Tensor &x = operand_x.tensor(), &y = operand_y.tensor();
  if (x.rank() == 0 || y.rank() == 0) return multiply(operand_x, operand_y);
  return dot_general(operand_x, operand_y,
                     {{x.rank() - 1}, {std::max<std::int64_t>(y.rank() - 2, 0)}, {}, {}});
}

Tensor outer(const Operand& x, const Operand& y) {
  PlaceScope scope(x.place());
  return dot_general(reshape(x, {-1}), reshape(y, {-1}), {});
}

Tensor tensordot(const Operand& x, const Operand& y, const Dims& axes_x, const Dims& axes_y) {
  PlaceScope scope(x.place());
  check(axes_x.size() == axes_y.size(), "tensordot: axes must come in pairs, got {} and {}",
        dims_to_string(axes_x), dims_to_string(axes_y));
  return dot_general(x, y, {axes_x, axes_y, {}, {}});
}

Tensor tensordot(const Operand& x, const Operand& y, std::int64_t axes) {
  PlaceScope scope(x.place());
  const std::int64_t rank = x.tensor().rank();
  check(axes >= 0 && axes <= rank && axes <= y.tensor().rank(),
        "tensordot: {} axes are more than {} or {} has", axes, to_string(x.tensor().type()),
        to_string(y.tensor().type()));
  return tensordot(x, y, range(rank - axes, rank), range(0, axes));
}

}  // namespace postern
