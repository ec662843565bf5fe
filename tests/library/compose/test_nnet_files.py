"""Files of Stanford's text format, against arithmetic by hand."""

import numpy as np
import pytest
import torch

from implicit_models.compose import from_network, network_from_nnet

TEXT = """// a small network
// of two inputs
2,2,1,3,
2,3,1,
0,
-1.0,0.0,
1.0,20.0,
0.5,10.0,7.0,
2.0,10.0,3.0,
1.0,0.0,
0.0,1.0,
-1.0,-1.0,
0.0,
0.5,
0.25,
1.0,2.0,-4.0,
-0.5,
"""


def made(folder, text=TEXT):
    path = folder / "small.nnet"
    path.write_text(text)
    return path


def hidden(z1, z2):
    return max(z1, 0) + 2 * max(z2 + 0.5, 0) - 4 * max(0.25 - z1 - z2, 0) - 0.5


def test_values_by_hand(tmp_path):
    inner = network_from_nnet(made(tmp_path), normalised=True)
    z = torch.tensor([[0.5, -0.25], [-1.0, 0.5]], dtype=torch.float64)
    # relu(0.5), relu(0.25), relu(0): 0.5 + 0.5 - 0.5; relu(-1), relu(1), relu(0.75): 2 - 3 - 0.5
    assert inner(z).flatten().tolist() == [0.5, -1.5]
    whole = network_from_nnet(made(tmp_path))
    u = torch.tensor([[1.0, 5.0], [-0.5, 15.0], [9.0, 15.0], [-0.5, -3.0]], dtype=torch.float64)
    # inputs in physical units: (1, 5) is (0.25, -0.5), and what lies outside of [-1, 1] x [0, 20] is clipped
    wanted = [7 + 3 * hidden(*p) for p in ((0.25, -0.5), (-0.5, 0.5), (0.25, 0.5), (-0.5, -1.0))]
    np.testing.assert_allclose(whole(u).flatten(), wanted, atol=1e-12)
    model = from_network(whole, 2)
    np.testing.assert_allclose(model(u).flatten(), wanted, atol=1e-9)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("2,2,1,3,", "2,2,x,3", r"line 3: the counts must be numbers with commas, got '2,2,x,3'"),
        ("2,2,1,3,", "2,2,1.5,3", "line 3: the counts must be positive whole numbers"),
        ("2,2,1,3,", "2,2,", "line 3: the counts must be four numbers, got 2"),
        ("2,3,1,\n", "2,3,4,\n", r"layers of sizes \[2, 3, 4\] do not go from 2 inputs to 1 outputs"),
        ("2,3,1,\n", "2,3,1,1\n", "line 4: the sizes of the layers must be 3 numbers, got 4"),
        ("0.5,10.0,7.0,", "0.5,10.0", "line 8: the means must be 3 numbers, got 2"),
        ("2.0,10.0,3.0,", "2.0,0.0,3.0", "range 1 is zero"),
        ("-1.0,0.0,\n", "-1.0,30.0,\n", "input 1 has the least value 30 above its largest, 20"),
        ("-1.0,-1.0,", "-1.0,nan,", "line 12: row 2 of layer 1 must be finite numbers"),
        ("-1.0,-1.0,", "-1.0", "line 12: row 2 of layer 1 must be 2 numbers, got 1"),
        ("-0.5,\n", "", "ends before bias 0 of layer 2"),
        ("-0.5,\n", "-0.5\n1.0\n", "line 18: the file goes on behind its last layer"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, old, new, match):
    assert old in TEXT
    with pytest.raises(ValueError, match=match):
        network_from_nnet(made(tmp_path, TEXT.replace(old, new, 1)))
