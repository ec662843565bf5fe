"""Chapter 5: depth of an equilibrium, the ablation of feedback, gradients and cost."""
