// lammps: potentials that JAX exported drive LAMMPS through `fix external`, in boxes of any number
// of atoms: Lennard-Jones, beside LAMMPS's own, and a small neural one.
//
// data/lennard_jones.jax and neural.jax (scripts/golden_hosts) give the energy of pairs of atoms;
// forces are its gradient. LAMMPS finds the pairs. Their number changes while the atoms move: lists
// are filled up with pairs that are too far apart to count, so that there are few sizes to compile.
#include <lammps/library.h>
#include <postern/postern.h>

#include <array>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace pn = postern;

namespace {

constexpr double reach = 2.5;

/// Pairs of atoms by their numbers here, and which image of the second is meant.
struct Pairs {
  std::vector<std::int32_t> i, j;
  std::vector<std::array<double, 3>> shift;
};

/// An exported potential, compiled for each size that comes.
class Potential {
 public:
  explicit Potential(const std::string& file) : energy_(pn::load(file)) {}
  /// Returns the energy, and writes its slope by the atoms' positions.
  double at(const std::vector<double>& x, const Pairs& pairs, std::vector<double>& slope) {
    const auto atoms = static_cast<std::int64_t>(x.size() / 3),
               count = static_cast<std::int64_t>(pairs.i.size());
    auto found = compiled_.find({atoms, count});
    if (found == compiled_.end()) {
      auto energy = [&](pn::Tensor p, pn::Tensor i, pn::Tensor j, pn::Tensor shift) {
        return energy_(p, i, j, shift)[0];
      };
      const pn::Type numbers = pn::type<std::int32_t>({count});
      found = compiled_
                  .emplace(std::pair{atoms, count},
                           pn::native(pn::value_and_grad(energy), pn::type<double>({atoms, 3}),
                                      numbers, numbers, pn::type<double>({count, 3})))
                  .first;
    }
    slope.resize(x.size());
    double energy = 0;
    const void* const in[] = {x.data(), pairs.i.data(), pairs.j.data(), pairs.shift.data()};
    void* const out[] = {&energy, slope.data()};
    found->second(in, out);
    return energy;
  }

 private:
  pn::Loaded energy_;
  std::map<std::pair<std::int64_t, std::int64_t>, pn::Native> compiled_;
};

/// A box of atoms in LAMMPS.
class Box {
 public:
  Box(int cells, const std::string& potential) {
    const char* arguments[] = {"lammps", "-log", "none", "-screen", "none"};
    lammps_ = lammps_open_no_mpi(5, const_cast<char**>(arguments), nullptr);
    const std::string size = std::to_string(cells);
    const std::vector<std::string> lines = {
        "units lj",
        "atom_style atomic",
        "atom_modify map array",
        "lattice fcc 0.8442",
        "region box block 0 " + size + " 0 " + size + " 0 " + size,
        "create_box 1 box",
        "create_atoms 1 box",
        "mass 1 1.0",
        "velocity all create 0.7 87287 loop geom",
        "pair_style " + potential,
        potential.starts_with("zero") ? "pair_coeff * *" : "pair_coeff 1 1 1.0 1.0 2.5",
        "neighbor 0.3 bin",
        "fix move all nve",
        "timestep 0.002"};
    for (const std::string& line : lines) command(line);
  }
  ~Box() { lammps_close(lammps_); }
  Box(const Box&) = delete;

  void command(const std::string& line) {
    lammps_command(lammps_, line.c_str());
    if (!lammps_has_error(lammps_)) return;
    std::string why(512, ' ');
    lammps_get_last_error_message(lammps_, why.data(), static_cast<int>(why.size()));
    throw std::runtime_error(line + ": " + why);
  }
  void drive(Potential& potential) {
    potential_ = &potential;
    command("fix drive all external pf/callback 1 1");
    command("fix_modify drive energy yes");
    lammps_set_fix_external_callback(
        lammps_, "drive",
        [](void* self, auto, int n, int* ids, double** x, double** f) {
          static_cast<Box*>(self)->forces(n, ids, x, f);
        },
        this);
  }
  double energy() { return lammps_get_thermo(lammps_, "etotal"); }
  double seconds(int steps) {
    const auto start = std::chrono::steady_clock::now();
    command("run " + std::to_string(steps));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  int atoms() { return static_cast<int>(lammps_get_natoms(lammps_)); }
  std::vector<double> positions, slope;
  Pairs pairs;

 private:
  void forces(int n, const int* ids, double** x, double** f) {
    const auto* const own = static_cast<const int*>(lammps_extract_atom(lammps_, "id"));
    std::map<int, std::int32_t> number;  // of an atom's id
    for (std::int32_t a = 0; a < n; ++a) number[ids[a]] = a;
    positions.assign(x[0], x[0] + 3 * n);
    pairs = {};
    const int list = lammps_find_pair_neighlist(lammps_, "zero", 1, 0, 0);
    const int count = lammps_neighlist_num_elements(lammps_, list);
    for (int k = 0; k < count; ++k) {
      int a = 0, near = 0, *others = nullptr;
      lammps_neighlist_element_neighbors(lammps_, list, k, &a, &near, &others);
      for (int m = 0; m < near; ++m) {
        const int b = others[m] & 0x1FFFFFFF;  // above are marks of bonds
        const std::int32_t owner = number.at(own[b]);
        pairs.i.push_back(a);
        pairs.j.push_back(owner);
        pairs.shift.push_back(
            {x[b][0] - x[owner][0], x[b][1] - x[owner][1], x[b][2] - x[owner][2]});
      }
    }
    while (pairs.i.size() % 8192 != 0) {
      pairs.i.push_back(0);
      pairs.j.push_back(0);
      pairs.shift.push_back({2 * reach, 0, 0});
    }
    const double energy = potential_->at(positions, pairs, slope);
    for (int a = 0; a < n; ++a)
      for (int d = 0; d < 3; ++d) f[a][d] = -slope[static_cast<std::size_t>(3 * a + d)];
    lammps_fix_external_set_energy_global(lammps_, "drive", energy);
  }

  void* lammps_ = nullptr;
  Potential* potential_ = nullptr;
};

double largest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

int main() {
  const std::string data = POSTERN_EXAMPLE_DATA;
  Potential lennard_jones(data + "/lennard_jones.jax"), neural(data + "/neural.jax");
  const pn::Loaded slopes = pn::load(data + "/neural_slope.jax");  // JAX's own gradient
  bool right = true;
  for (const int cells : {4, 5, 6, 7, 8}) {
    constexpr int steps = 100;
    Box theirs(cells, "lj/cut 2.5"), ours(cells, "zero 2.5"), network(cells, "zero 2.5");
    ours.drive(lennard_jones);
    network.drive(neural);
    for (Box* box : {&theirs, &ours, &network}) box->seconds(0);
    const double off = std::abs(ours.energy() - theirs.energy()), start = network.energy();
    const double own = theirs.seconds(steps), exported = ours.seconds(steps);
    const double apart = std::abs(ours.energy() - theirs.energy());
    network.seconds(steps);
    const double drift = std::abs(network.energy() - start);
    const auto n = network.atoms();
    const auto m = static_cast<std::int64_t>(network.pairs.i.size());
    const pn::Type numbers = pn::type<std::int32_t>({m});
    const Pairs& pairs = network.pairs;
    const pn::Tensor slope =
        slopes(pn::Tensor(pn::type<double>({n, 3}), network.positions.data()),
               pn::Tensor(numbers, pairs.i.data()), pn::Tensor(numbers, pairs.j.data()),
               pn::Tensor(pn::type<double>({m, 3}), pairs.shift.data()))[1];
    const double wrong = largest(network.slope, slope.to_vector<double>());
    std::cout << n << " atoms: energy off by " << off << ", " << apart << " after " << steps
              << " steps, " << 1e6 * exported / steps << " us a step, LAMMPS's own "
              << 1e6 * own / steps << "; neural: drift " << drift << ", forces off by " << wrong
              << "\n";
    right = right && off < 1e-9 && apart < 1e-6 && drift < 1e-3 && wrong < 1e-9;
  }
  if (!right) std::cerr << "lammps: something is off by too much\n";
  return right ? 0 : 1;
}
