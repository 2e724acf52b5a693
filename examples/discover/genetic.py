"""Genetic programming over the expressions of a C file, without a model: `python genetic.py FOLDER SEED CANDIDATES`.

FOLDER keeps all candidates, so that the same command resumes the search. Its result is FOLDER/best.c.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from evaluator import Evaluator

Tree = list[str | float]  # an expression: an operator before its operands, a variable, or a number
Genome = dict[str, Tree]

OPERATORS: Final = {
    "+": "({} + {})",
    "-": "({} - {})",
    "*": "({} * {})",
    "/": "over({}, {})",
    "min": "fmin({}, {})",
    "max": "fmax({}, {})",
    "if": "({} > 0 ? {} : {})",
}
FIVE: Final[Genome] = {
    "window": ["+", "w", "*", 0.5, "-", 3.0, "q"],  # the next one, once per round trip
    "ends": ["-", "q", 3.0],  # the start ends above 0
    "grows": [0.5],  # how much of what an ACK acknowledges is added in the start
    "loss": ["*", 0.7, "w"],  # the window after a loss
    "paces": [1.2],  # the pacing gain
    "forgets": [0.0],  # how far the least RTT goes to the smoothed one, once per round trip
}
"""The expressions of five.c as it is."""
POPULATION: Final = 40

TEMPLATE: Final = """/* Found by a search (docs/discover.md). In packets: the window w, its part q in the queue, the
 * BDP b by the best rate, c by the last one. Over the least RTT: the smoothed one r, its jitter j. Lost part: l. */
#include "bbrgym_controller.h"
#include <math.h>
struct flow {
  double w, q, b, c, r, j, l, packet, least, rtt, jitter, best, rate, lost, acked; /* bytes, ns, bit/s */
  int64_t round_end, is_starting; /* bytes delivered, and a truth */
};
static double over(double a, double b) { return fabs(b) < 1e-9 ? a : a / b; }
%s
static void set(struct flow *s, double window) { s->w = fmin(fmax(window, 2), 2 * s->w + 10); }
static void create(void *state, const struct bbrgym_connection *c) {
  struct flow begin = {.w = 10, .packet = c->packet_bytes, .least = c->rtt_ns, .rtt = c->rtt_ns, .is_starting = 1};
  *(struct flow *)state = begin;
}
static void on_ack(void *state, const struct bbrgym_ack *ack) {
  struct flow *s = state;
  if (ack->rtt_ns > 0) {
    s->least = s->least > 0 ? fmin(s->least, ack->rtt_ns) : ack->rtt_ns;
    s->rtt += s->rtt > 0 ? (ack->rtt_ns - s->rtt) / 8 : ack->rtt_ns;
    s->jitter += (fabs(ack->rtt_ns - s->rtt) - s->jitter) / 8;
  }
  if (s->rtt == 0) return;
  s->acked += ack->bytes_acked, s->lost += ack->bytes_lost;
  s->rate = fmax(s->rate, ack->delivery_rate), s->best = fmax(s->best, ack->delivery_rate);
  s->q = s->w * (1 - s->least / s->rtt), s->r = s->rtt / s->least, s->j = s->jitter / s->least;
  s->b = s->best * s->least / 8e9 / s->packet, s->c = s->rate * s->least / 8e9 / s->packet;
  if (s->is_starting) set(s, s->w + fmin(fmax(grows(s), 0), 1) * ack->bytes_acked / s->packet);
  if (ends(s) > 0) s->is_starting = 0;
  if (ack->prior_delivered < s->round_end) return; /* the round trip goes on */
  s->round_end = ack->delivered;
  s->l = over(s->lost, s->lost + s->acked);
  if (!s->is_starting) set(s, window(s));
  s->least += fmin(fmax(forgets(s), 0), 1) * (s->rtt - s->least);
  s->best = fmax(s->rate, 0.95 * s->best), s->rate = s->acked = s->lost = 0;
}
static void on_loss(void *state, const struct bbrgym_loss *event) {
  struct flow *s = state;
  if (event->kind == BBRGYM_LOSS) set(s, loss(s));
  if (event->kind == BBRGYM_TIMEOUT) set(s, 2);
}
static void decision(const void *state, struct bbrgym_decision *chosen) {
  const struct flow *s = state;
  chosen->window = s->w * s->packet;
  if (s->rtt > 0) chosen->pacing_rate = fmin(fmax(paces(s), 0.5), 4) * chosen->window * 8e9 / s->rtt;
}
const struct bbrgym_controller bbrgym_controller = {
    BBRGYM_CONTROLLER_VERSION, sizeof(struct flow), NULL, create, on_ack, on_loss, decision, NULL};
"""


def written(tokens: Iterator[str | float]) -> str:
    """Return an expression in C."""
    token = next(tokens)
    if token not in OPERATORS:
        return f"{token:.3g}" if isinstance(token, float) else f"s->{token}"
    text = OPERATORS[token]
    return text.format(*[written(tokens) for _ in range(text.count("{}"))])


def program(genome: Genome) -> str:
    """Return the C file of a genome."""
    heads = {name: f"static double {name}(const struct flow *s) {{" for name in genome}
    return TEMPLATE % "\n".join(f"{heads[name]}\n  return {written(iter(tree))}; }}" for name, tree in genome.items())


def subtree(tree: Tree, begin: int) -> slice:
    """Return where the expression is that begins there."""
    end, missing = begin, 1
    while missing:
        missing += OPERATORS.get(str(tree[end]), "").count("{}") - 1
        end += 1
    return slice(begin, end)


def random_tree(rng: random.Random, depth: int) -> Tree:
    """Return a random expression."""
    if depth == 0 or rng.random() < 0.3:
        return [rng.choice("wqbcrjl") if rng.random() < 0.6 else math.exp(rng.gauss(0, 1.5))]
    name = rng.choice(list(OPERATORS))
    return [name, *(token for _ in range(OPERATORS[name].count("{}")) for token in random_tree(rng, depth - 1))]


def child(rng: random.Random, mother: Genome, father: Genome) -> Genome:
    """Return a crossing of two genomes with one to three mutations."""
    genome = {name: rng.choice((mother, father))[name] for name in mother}
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(list(genome))
        tree = genome[name]
        numbers = [place for place, token in enumerate(tree) if isinstance(token, float)]
        if numbers and rng.random() < 0.5:
            place = subtree(tree, rng.choice(numbers))
            number = float(tree[place.start])
            new: Tree = [number * math.exp(rng.gauss(0, 0.3)) if number else abs(rng.gauss(0, 0.02))]
        else:
            place = subtree(tree, rng.randrange(len(tree)))
            donor = rng.choice([tree[place], *father.values()])
            graft = donor[subtree(donor, rng.randrange(len(donor)))]
            around = [rng.choice("+-*/"), *tree[place], *random_tree(rng, 1)]
            new = rng.choice((graft, around, random_tree(rng, 2)))
        if (
            len(changed := [*tree[: place.start], *new, *tree[place.stop :]]) <= 20
        ):  # so that its function fits into a line
            genome[name] = changed
    return genome


def search(folder: Path, seed: int, candidates: int, evaluator: Evaluator) -> list[str]:
    """Return the best of so many files, the best first; what the folder has of the same search is not run again."""
    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / "candidates.jsonl"
    known = dict(map(json.loads, journal.read_text().splitlines())) if journal.exists() else {}
    rng = random.Random(seed)
    living: list[tuple[float, str, Genome]] = []
    tried: set[str] = set()
    while len(tried) < candidates:
        batch = {} if tried else {program(FIVE): FIVE}
        while len(batch) < min(POPULATION, candidates - len(tried)):
            parents = [min(rng.sample(living, 4))[2] if living else FIVE for _ in range(2)]
            genome = child(rng, *parents)
            if (text := program(genome)) not in tried:
                batch[text] = genome
        missing = [text for text in batch if text not in known]
        with ThreadPoolExecutor(2) as pool, journal.open("a") as file:
            for text, feedback in zip(missing, pool.map(evaluator.evaluate, missing), strict=True):
                known[text] = feedback.value
                print(json.dumps([text, feedback.value]), file=file, flush=True)
        tried |= batch.keys()
        living = sorted([*living, *((-known[text], text, genome) for text, genome in batch.items())])[:POPULATION]
        print(f"{len(tried)} candidates: best {-living[0][0]:.4f}", flush=True)
    return [text for _, text, _ in living]


if __name__ == "__main__":
    FOLDER, SEED = Path(sys.argv[1]), int(sys.argv[2])
    best = search(FOLDER, SEED, int(sys.argv[3]), Evaluator(SEED, 32, beside=0))[:10]
    judge = Evaluator(SEED + 1, 96, beside=0)  # the first was also the luckiest
    value, text = max((judge.evaluate(text).value, text) for text in best)
    (FOLDER / "best.c").write_text(text)
    print(f"{FOLDER / 'best.c'}: {value:.4f} in other scenarios")
