// Programs of open sizes. The function is traced at several sizes: its programs, and then their
// texts, must be the same word for word, and each number that differs one expression of the sizes.
// How small sizes may be is tried, and which may be equal.
#include "file/open.h"

#include <algorithm>
#include <map>

#include "core/check.h"
#include "core/lists.h"
#include "core/text.h"
#include "core/value.h"
#include "file/described_json.h"
#include "file/once_each.h"

namespace postern::internal::file {

std::string Template::escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '$') out += c;
    out += c;
  }
  return out;
}

Template::Template(std::string_view text, std::span<const std::string> names) {
  using Kind = Part::Kind;
  while (!text.empty()) {
    const std::size_t dollar = std::min(text.find('$'), text.size());
    if (dollar > 0) parts_.push_back({Kind::text, std::string(text.substr(0, dollar))});
    text.remove_prefix(dollar);
    if (text.empty()) break;
    if (text.starts_with("$$")) {
      parts_.push_back({Kind::dollar, "$"});
      text.remove_prefix(2);
      continue;
    }
    const std::size_t end = text.find('}');
    if (!text.starts_with("${") || end == text.npos)
      throw Error(ErrorCode::invalid_argument, "a '$' begins no number and is none");
    const std::string_view inside = text.substr(2, end - 2);
    if (inside.starts_with("="))
      parts_.push_back({Kind::mark, std::string(inside.substr(1))});
    else if (inside.starts_with("@"))
      parts_.push_back({Kind::distance, std::string(inside.substr(1))});
    else
      parts_.push_back({Kind::number, "", Expression::read(inside, names)});
    text.remove_prefix(end + 1);
  }
}

// The first round finds the places, the second writes the distances too. These stand in front of
// the place m, so that what they add moves all places alike.
std::string Template::at(const Sizes& sizes) const {
  std::map<std::string, std::size_t> places;
  std::string out;
  for (const bool first_round : {true, false}) {
    out.clear();
    for (const Part& p : parts_) switch (p.kind) {
        case Part::Kind::text:
        case Part::Kind::dollar: out += p.text; break;
        case Part::Kind::number: out += p.number.at(sizes); break;
        case Part::Kind::mark:
          if (first_round) places[p.text] = out.size();
          break;
        case Part::Kind::distance:
          if (first_round) break;
          if (!places.contains(p.text) || !places.contains("m"))
            throw Error(ErrorCode::invalid_argument, fmt::format("there is no place {}", p.text));
          out += std::to_string(places[p.text] - places["m"]);
      }
  }
  return out;
}

std::string Template::numbers_at(const Sizes& sizes) const {
  std::string out;
  for (const Part& p : parts_) switch (p.kind) {
      case Part::Kind::text: out += p.text; break;
      case Part::Kind::number: out += p.number.at(sizes); break;
      case Part::Kind::mark: out += fmt::format("${{={}}}", p.text); break;
      case Part::Kind::distance: out += fmt::format("${{@{}}}", p.text); break;
      case Part::Kind::dollar: out += "$$"; break;
    }
  return out;
}

namespace {

bool is_hex(char c) {
  constexpr std::string_view digits = "0123456789ABCDEFabcdef";
  return digits.find(c) != digits.npos;
}

bool begins_no_word(char c) { return !is_digit(c) && c != '-' && c != '\n'; }

/// Where the word ends that begins at i: a number, perhaps with a sign, a point and an exponent;
/// bits in hexadecimal; or what stands in front of the next of these.
std::size_t word_end(std::string_view text, std::size_t i) {
  const std::size_t size = text.size();
  const auto behind_all = [&](bool (*of_these)(char), std::size_t from) {
    while (from < size && of_these(text[from])) ++from;
    return from;
  };
  const bool bits = text.substr(i).starts_with("0x") && i > 0 &&
                    (text[i - 1] == '"' || text.substr(0, i).ends_with("dense<"));
  if (bits) return behind_all(is_hex, i + 2);
  const bool sign = text[i] == '-' && i + 1 < size && is_digit(text[i + 1]);
  if (!sign && !is_digit(text[i])) return behind_all(begins_no_word, i + 1);
  std::size_t end = behind_all(is_digit, i + sign);
  const bool point = end + 1 < size && text[end] == '.' && is_digit(text[end + 1]);
  if (!point) return end;
  end = behind_all(is_digit, end + 1);
  const std::string_view rest = text.substr(end);
  const bool exponent = rest.starts_with("e-") || rest.starts_with("e+");
  return exponent && rest.size() > 2 ? behind_all(is_digit, end + 2) : end;
}
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = word_end(text, i);
    out.push_back(text.substr(i, end - i));
    i = end;
  }
  return out;
}
bool is_number(std::string_view word) {
  return is_digit(word[0]) || (word[0] == '-' && word.size() > 1 && is_digit(word[1]));
}

std::string_view line_around(std::string_view text, std::size_t at) {
  at += text[at] == '\n';  // of the next line's first word
  const std::size_t begin = text.substr(0, at).rfind('\n') + 1,
                    end = std::min(text.find('\n', at), text.size());
  std::string_view out = text.substr(begin, end - begin);
  while (out.starts_with(" ")) out.remove_prefix(1);
  return out;
}

std::string shown(std::span<const std::string> names, const Sizes& sizes) {
  Separator comma;
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out += fmt::format("{}{} = {}", comma(), names[i], sizes[i]);
  return out;
}

/// The open sizes and the values at which the function was traced, for errors.
struct Told {
  std::span<const std::string> names;
  const std::vector<Sizes>& samples;

  /// Throws TypeError for programs that are not the same: `one` is the line of the first sample's
  /// where they part, `other` that of this sample's.
  [[noreturn]] void refuse(std::string_view one, std::string_view other, std::size_t sample) const {
    std::string operation = "the program", place;
    for (const std::string_view line : {other, one}) {
      if (const std::size_t equal = line.find(" = "); equal != line.npos)
        operation = line.substr(equal + 3, line.find_first_of("[ ", equal + 3) - equal - 3);
      if (const std::size_t at = line.rfind("  @ "); at != line.npos)
        place = fmt::format(" at {}", line.substr(at + 4));
    }
    if (operation == "stablehlo.constant") operation = "a tensor that the function captures";
    const auto cut = [](std::string_view line) {
      constexpr std::size_t most = 160;
      return line.substr(0, std::min(line.rfind("  @ "), most));
    };
    throw_type_error(fmt::format(
        "save: sizes are open, and {}{} is not the same operation at all of them, nor are its "
        "numbers whole expressions of the sizes: it is '{}' where {}, '{}' where {}",
        operation, place, cut(one), shown(names, samples[0]), cut(other),
        shown(names, samples[sample])));
  }
};

/// Merges the texts of all samples to one, word by word: equal words stay, numbers that differ
/// become the expression that gives them. Anything else is refused.
std::string merged(const std::vector<std::string>& texts, const Fitting& fitting,
                   const Told& told) {
  std::vector<std::vector<std::string_view>> words;
  for (const std::string& text : texts) words.push_back(words_of(text));
  std::map<std::vector<std::string_view>, std::string> fitted;
  std::string out;
  const auto refuse = [&](std::size_t i, std::size_t sample) {
    const auto line = [&](std::size_t s) {
      if (i >= words[s].size()) return std::string_view("nothing more");
      return line_around(texts[s], size_of(words[s][i].data() - texts[s].data()));
    };
    told.refuse(line(0), line(sample), sample);
  };
  for (std::size_t i = 0; i < words[0].size(); ++i) {
    std::vector<std::string_view> by_sample;
    std::size_t differs = 0;  // the first sample whose word is another one; 0: none
    for (std::size_t s = 0; s < words.size(); ++s) {
      if (i >= words[s].size()) refuse(i, s);
      by_sample.push_back(words[s][i]);
      if (differs == 0 && by_sample[s] != by_sample[0]) differs = s;
    }
    if (differs == 0) {
      out += by_sample[0];
      continue;
    }
    if (!std::ranges::all_of(by_sample, is_number)) refuse(i, differs);
    const auto [known, is_new] = fitted.try_emplace(by_sample);
    if (is_new) {
      const auto expression = fitting.of(by_sample);
      if (!expression) refuse(i, differs);
      known->second = fmt::format("${{{}}}", expression->text(told.names));
    }
    out += known->second;
  }
  for (std::size_t s = 1; s < words.size(); ++s)
    if (words[s].size() > words[0].size()) refuse(words[0].size() - 1, s);
  return out;
}

/// The bytes of what the program captured, which its text does not show.
std::string captured(const Lowered& program) {
  std::string out;
  for (const Tensor& t : program.captures()) {
    const std::size_t at = out.size();
    out.resize(at + t.type().byte_size());
    t.read(out.data() + at);
  }
  return out;
}

/// The least value of size j from which on the text is the program, the others being as in `base`,
/// where it fits. Most programs fit from 1 or 0 on; for others the range is halved.
std::int64_t least_of(std::size_t j, const Sizes& base, const std::function<bool(Sizes)>& fits) {
  const auto at = [&](std::int64_t n) {
    Sizes sizes = base;
    sizes[j] = n;
    return fits(std::move(sizes));
  };
  if (at(1) && at(2) && at(3)) return at(0) ? 0 : 1;
  std::int64_t low = 1, high = base[j];  // low does not fit, high does
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    if (at(middle))
      high = middle;
    else
      low = middle;
  }
  return high;
}

}  // namespace

// Traces at all samples and merges the programs, and then the texts: of the two only programs know
// their lines, which errors name. What is open is then tried at small sizes, by twos at equal ones,
// and where all are small together.
std::string open_text(const detail::OpenProgram& open,
                      const std::function<std::string(const Lowered&)>& body) {
  std::vector<std::string> names;
  for (const std::int64_t extent : open.extents) names.emplace_back(open_name(extent));
  constexpr std::size_t most = 6;
  check(names.size() <= most, "save: at most {} sizes can be open, got {}", most, names.size());
  const std::vector<Sizes> samples = Fitting::samples(names.size());
  const Told told{names, samples};
  std::vector<std::string> programs, bodies, captures;
  for (const Sizes& sizes : samples) {
    const Lowered one = open.at(sizes);
    captures.push_back(captured(one));
    programs.push_back(Template::escaped(to_string(one.program())));
    bodies.push_back(body(one));
  }
  const Fitting fitting(samples);
  const Template merged_program(merged(programs, fitting, told), names);
  const std::string text = merged(bodies, fitting, told);
  const Template merged_text(text, names);
  const auto fits = [&](const Sizes& sizes, bool by_text) {
    try {
      const Lowered one = open.at(sizes);
      if (by_text) return merged_text.numbers_at(sizes) == body(one);
      return captured(one) == captures[0] &&
             once_each(merged_program.at(sizes)) == once_each(to_string(one.program()));
    } catch (const Error&) {
      return false;
    }
  };
  // A program whose captures are of the sizes, or that shows a number in another way than the file
  // does, is compared as text.
  const bool as_text =
      captures != std::vector(samples.size(), captures[0]) || !fits(samples[0], false);
  Sizes least;
  for (std::size_t j = 0; j < names.size(); ++j)
    least.push_back(least_of(j, samples[0], [&](const Sizes& s) { return fits(s, true); }));
  std::vector<std::vector<std::size_t>> differ;
  for (std::size_t j = 1; j < names.size(); ++j)
    for (std::size_t k = 0; k < j; ++k) {
      Sizes equal = samples[0];
      equal[j] = equal[k];
      if (!fits(equal, as_text)) differ.push_back({k, j});
    }
  const auto fits_together = [&] {
    Sizes sizes = least;
    for (const auto& pair : differ) sizes[pair[1]] += sizes[pair[0]] == sizes[pair[1]];
    return fits(sizes, as_text);
  };
  for (std::int64_t more = 1; names.size() > 1 && least != samples[0] && !fits_together();
       more *= 2)
    for (std::size_t j = 0; j < names.size(); ++j)
      least[j] = std::min(least[j] + more, samples[0][j]);
  Json about = {{"names", names}, {"least", least}};
  if (!differ.empty()) about["differ"] = differ;
  return fmt::format("{}{}\n{}", open_words, about.dump(), text);
}

/// Reads "f32[${n},3]": to a type with -1 where sizes are open, their expressions, and "f32[n,3]".
static OpenFile::Input input_of(const std::string& text, std::span<const std::string> names) {
  OpenFile::Input out;
  std::string closed;  // with 0 where sizes are open
  const std::size_t open = text.find('[');
  if (open == text.npos || !text.ends_with("]"))
    throw Error(ErrorCode::invalid_argument, fmt::format("'{}' is no type", text));
  closed = out.shown = text.substr(0, open + 1);
  for (std::size_t i = open + 1; i + 1 < text.size();) {
    const std::size_t end = std::min(text.find(',', i), text.size() - 1);
    const std::string word = text.substr(i, end - i);
    const std::string comma(text[end] == ',', ',');
    out.dims.emplace_back();
    if (word.starts_with("${") && word.ends_with("}")) {
      const std::string inside = word.substr(2, word.size() - 3);
      out.dims.back() = Expression::read(inside, names);
      out.shown += inside + comma;
      closed += "0" + comma;
    } else {
      out.shown += word + comma;
      closed += word + comma;
    }
    i = end + 1;
  }
  out.type = parse_type(closed + "]");
  out.shown += "]";
  for (std::size_t d = 0; d < out.dims.size(); ++d)
    if (out.dims[d]) out.type.dims.at(d) = -1;
  return out;
}

OpenFile OpenFile::read(std::string_view text) {
  const std::size_t end = text.find('\n');
  if (!text.starts_with(open_words) || end == text.npos)
    throw Error(ErrorCode::invalid_argument, "it says not which sizes are open");
  const Json about = Json::parse(text.substr(open_words.size(), end - open_words.size()));
  text.remove_prefix(end + 1);
  const auto names = about.at("names").get<std::vector<std::string>>();
  OpenFile out{.names = names,
               .least = about.at("least").get<Sizes>(),
               .differ = exactly<std::vector<std::vector<std::size_t>>>(
                   about.value("differ", Json::array())),
               .text = Template(text, names)};
  for (const auto& pair : out.differ)
    check(pair.size() == 2 && std::ranges::max(pair) < names.size(), "sizes that differ are two");
  constexpr std::string_view about_words = "// about ";
  if (!text.starts_with(about_words) || out.least.size() != names.size() || names.empty())
    throw Error(ErrorCode::invalid_argument, "it says not how large its sizes may be");
  const Json types =
      Json::parse(text.substr(about_words.size(), text.find('\n') - about_words.size()));
  std::vector<bool> found(names.size());
  for (const Json& t : types.at("inputs")) {
    out.inputs.push_back(input_of(t.get<std::string>(), names));
    for (const auto& dim : out.inputs.back().dims)
      if (dim && dim->only()) found[*dim->only()] = true;
  }
  for (const Json& t : types.at("outputs"))
    out.outputs.push_back(input_of(t.get<std::string>(), names).type);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!found[i])
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("the size {} is not an extent of an argument", names[i]));
  return out;
}

Sizes OpenFile::sizes_of(std::span<const Tensor> arguments) const {
  check(arguments.size() == inputs.size(), "the saved program takes {} arguments, {} came",
        inputs.size(), arguments.size());
  Sizes out(names.size(), -1);                     // -1: no argument has said it yet
  std::vector<std::size_t> said_by(names.size());  // the number of the first that did
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& [type, dims, shown] = inputs[i];
    const Tensor& x = arguments[i];
    bool fits = x.has_value() && x.dtype() == type.dtype && x.rank() == type.rank();
    for (std::size_t d = 0; d < dims.size() && fits; ++d)
      fits = dims[d] || x.dims()[d] == type.dims[d];
    check(fits, "argument {} of the saved program must be {}, got {}", i, shown, type_text(x));
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (!dims[d] || !dims[d]->only()) continue;
      const std::size_t size = *dims[d]->only();
      const std::int64_t extent = x.dims()[d];
      check(out[size] < 0 || out[size] == extent,
            "argument {} of the saved program must be {}, got {}: {} is {} in argument {}", i,
            shown, type_text(x), names[size], out[size], said_by[size]);
      check(extent >= least[size],
            "argument {} of the saved program must be {}, got {}: {} must be at least {}, below "
            "which the function that was saved is another program",
            i, shown, type_text(x), names[size], least[size]);
      if (out[size] < 0) said_by[size] = i;
      out[size] = extent;
    }
  }
  for (const auto& pair : differ)
    check(out[pair[0]] != out[pair[1]],
          "{} and {} of the saved program are both {}: where they are equal, the function that was "
          "saved is another program",
          names[pair[0]], names[pair[1]], out[pair[0]]);
  return out;
}

}  // namespace postern::internal::file
